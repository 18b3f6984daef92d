// XXH3-64 and XXH32 with seed 0, over 64-bit integers as BigInt: keys are short, and few.

const MASK = (1n << 64n) - 1n;
const P32_1 = 0x9e3779b1n;
const P32_2 = 0x85ebca77n;
const P32_3 = 0xc2b2ae3dn;
const P64_1 = 0x9e3779b185ebca87n;
const P64_2 = 0xc2b2ae3d27d4eb4fn;
const P64_3 = 0x165667b19e3779f9n;
const P64_4 = 0x85ebca77c2b2ae63n;
const P64_5 = 0x27d4eb2f165667c5n;
const MX1 = 0x165667919e3779f9n;
const MX2 = 0x9fb21c651e98df25n;
const SECRET = view(
  Uint8Array.from(
    (
      "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
      "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
      "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
      "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ).match(/../g) ?? [],
    (pair) => parseInt(pair, 16),
  ),
);

/** @param {Uint8Array} bytes */
function view(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** @param {DataView} data @param {number} at */
const u64 = (data, at) => data.getBigUint64(at, true);
/** @param {DataView} data @param {number} at */
const u32 = (data, at) => BigInt(data.getUint32(at, true));
/** @param {bigint} a @param {bigint} b */
const times = (a, b) => (a * b) & MASK;
/** @param {bigint} a @param {bigint} b */
const folded = (a, b) => ((a * b) & MASK) ^ ((a * b) >> 64n);
/** @param {bigint} a @param {bigint} n */
const shifted = (a, n) => a ^ (a >> n);
/** @param {bigint} a @param {bigint} n */
const rotated = (a, n) => ((a << n) | (a >> (64n - n))) & MASK;

/** @param {bigint} hash */
const avalanche3 = (hash) => shifted(times(shifted(hash, 37n), MX1), 32n);
/** @param {bigint} hash */
const avalanche64 = (hash) => shifted(times(shifted(times(shifted(hash, 33n), P64_2), 29n), P64_3), 32n);

/** @param {bigint} a */
function swapped(a) {
  let result = 0n;
  for (let index = 0; index < 8; index++) {
    result = (result << 8n) | (a & 0xffn);
    a >>= 8n;
  }
  return result;
}

/** @param {Uint8Array} bytes @returns {bigint} */
export function xxh3(bytes) {
  const data = view(bytes);
  const size = bytes.length;
  if (size > 240) return long(data, size);
  if (size > 128) return upTo240(data, size);
  if (size > 16) return upTo128(data, size);
  return upTo16(data, size);
}

/** @param {DataView} data @param {number} size */
function upTo16(data, size) {
  const length = BigInt(size);
  if (size > 8) {
    const low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32);
    const high = u64(data, size - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48);
    return avalanche3((length + swapped(low) + high + folded(low, high)) & MASK);
  }
  if (size > 3) {
    const both = u32(data, size - 4) | (u32(data, 0) << 32n);
    let hash = both ^ u64(SECRET, 8) ^ u64(SECRET, 16);
    hash ^= rotated(hash, 49n) ^ rotated(hash, 24n);
    hash = times(hash, MX2);
    hash ^= (hash >> 35n) + length;
    return shifted(times(hash & MASK, MX2), 28n);
  }
  if (size > 0) {
    const [first, middle, last] = [0, size >> 1, size - 1].map((at) => BigInt(data.getUint8(at)));
    const mixed = (first << 16n) | (middle << 24n) | last | (length << 8n);
    return avalanche64(mixed ^ u32(SECRET, 0) ^ u32(SECRET, 4));
  }
  return avalanche64(u64(SECRET, 56) ^ u64(SECRET, 64));
}

/** @param {DataView} data @param {number} at @param {number} secret */
function mix16(data, at, secret) {
  return folded(u64(data, at) ^ u64(SECRET, secret), u64(data, at + 8) ^ u64(SECRET, secret + 8));
}

/** @param {DataView} data @param {number} size */
function upTo128(data, size) {
  let sum = times(BigInt(size), P64_1);
  for (let pair = (size - 1) >> 5; pair >= 0; pair--) {
    sum += mix16(data, 16 * pair, 32 * pair);
    sum += mix16(data, size - 16 * (pair + 1), 32 * pair + 16);
  }
  return avalanche3(sum & MASK);
}

/** @param {DataView} data @param {number} size */
function upTo240(data, size) {
  let sum = times(BigInt(size), P64_1);
  for (let part = 0; part < 8; part++) sum += mix16(data, 16 * part, 16 * part);
  sum = avalanche3(sum & MASK);
  for (let part = 8; part < size >> 4; part++) sum += mix16(data, 16 * part, 16 * (part - 8) + 3);
  return avalanche3((sum + mix16(data, size - 16, 136 - 17)) & MASK);
}

const STRIPE = 64;
const STRIPES = (192 - STRIPE) / 8;

/** @param {DataView} data @param {number} size */
function long(data, size) {
  const sums = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1];
  const block = STRIPE * STRIPES;
  const blocks = Math.floor((size - 1) / block);
  for (let index = 0; index < blocks; index++) {
    for (let stripe = 0; stripe < STRIPES; stripe++) accumulate(sums, data, index * block + stripe * STRIPE, stripe * 8);
    sums.forEach((sum, lane) => {
      sums[lane] = times(shifted(sum, 47n) ^ u64(SECRET, 192 - STRIPE + 8 * lane), P32_1);
    });
  }
  const rest = Math.floor((size - 1 - blocks * block) / STRIPE);
  for (let stripe = 0; stripe < rest; stripe++) accumulate(sums, data, blocks * block + stripe * STRIPE, stripe * 8);
  accumulate(sums, data, size - STRIPE, 192 - STRIPE - 7);
  let hash = times(BigInt(size), P64_1);
  for (let pair = 0; pair < 4; pair++) {
    hash += folded(sums[2 * pair] ^ u64(SECRET, 11 + 16 * pair), sums[2 * pair + 1] ^ u64(SECRET, 19 + 16 * pair));
  }
  return avalanche3(hash & MASK);
}

/** @param {bigint[]} sums @param {DataView} data @param {number} at @param {number} secret */
function accumulate(sums, data, at, secret) {
  for (let lane = 0; lane < 8; lane++) {
    const value = u64(data, at + 8 * lane);
    const keyed = value ^ u64(SECRET, secret + 8 * lane);
    sums[lane ^ 1] = (sums[lane ^ 1] + value) & MASK;
    sums[lane] = (sums[lane] + (keyed & 0xffffffffn) * (keyed >> 32n)) & MASK;
  }
}

const P1 = 0x9e3779b1;
const P2 = 0x85ebca77;
const P3 = 0xc2b2ae3d;
const P4 = 0x27d4eb2f;
const P5 = 0x165667b1;

/** @param {number} a @param {number} n */
const turned = (a, n) => (a << n) | (a >>> (32 - n));

/** @param {Uint8Array} bytes @returns {number} */
export function xxh32(bytes) {
  const data = view(bytes);
  let at = 0;
  let hash = P5;
  if (bytes.length >= 16) {
    const sums = [P1 + P2, P2, 0, -P1];
    for (; at + 16 <= bytes.length; at += 16) {
      sums.forEach((sum, lane) => {
        sums[lane] = Math.imul(turned((sum + Math.imul(data.getUint32(at + 4 * lane, true), P2)) | 0, 13), P1);
      });
    }
    hash = turned(sums[0], 1) + turned(sums[1], 7) + turned(sums[2], 12) + turned(sums[3], 18);
  }
  hash = (hash + bytes.length) | 0;
  for (; at + 4 <= bytes.length; at += 4) {
    hash = Math.imul(turned((hash + Math.imul(data.getUint32(at, true), P3)) | 0, 17), P4);
  }
  for (; at < bytes.length; at++) hash = Math.imul(turned((hash + Math.imul(bytes[at], P5)) | 0, 11), P1);
  hash = Math.imul(hash ^ (hash >>> 15), P2);
  hash = Math.imul(hash ^ (hash >>> 13), P3);
  return (hash ^ (hash >>> 16)) >>> 0;
}
