import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { HeadwaterError } from "../../../src/headwater/http/js/headwater.js";
import { Server } from "./support.mjs";

let server;
let number = 0;
before(async () => (server = await Server.start()));
after(() => server.stop());

async function fresh(options) {
  const stream = server.client(options).stream(`p/${++number}`);
  await stream.create();
  return stream;
}

test("messages share requests and keep their order", async () => {
  let requests = 0;
  const counting = (input, init) => {
    requests += init?.method === "POST" ? 1 : 0;
    return fetch(input, init);
  };
  const stream = await fresh({ fetch: counting });
  const producer = stream.producer();
  const stored = Array.from({ length: 1000 }, (_, index) => producer.append(index));
  await producer.close();
  const receipts = await Promise.all(stored);
  assert.deepEqual((await stream.read()).messages, Array.from({ length: 1000 }, (_, index) => index));
  assert.ok(requests < 20, `${requests} requests`);
  assert.ok(receipts.every((receipt) => receipt.offset && !receipt.duplicate));
  await assert.rejects(producer.append(1), { code: "producer_closed" });
});

test("what was stored without an answer is stored once", async () => {
  let lost = 0;
  const lossy = async (input, init) => {
    const answer = await fetch(input, init);
    if (init?.method === "POST" && lost < 3 && ++lost) throw new TypeError("the answer was lost");
    return answer;
  };
  const stream = await fresh({ fetch: lossy });
  const producer = stream.producer("once");
  const receipt = await producer.append({ a: 1 });
  assert.equal(receipt.duplicate, true);
  await producer.append([{ b: 2 }, { c: 3 }]);
  assert.deepEqual((await stream.read()).messages, [{ a: 1 }, { b: 2 }, { c: 3 }]);
});

test("a name that was used before is claimed, and its former owner stops", async () => {
  const stream = await fresh();
  const ahead = Date.now() + 3_600_000;
  const former = stream.producer("name", { epoch: ahead });
  await former.append(1);
  const later = stream.producer("name");
  await later.append(2);
  assert.equal(later.epoch, ahead + 1);
  await assert.rejects(former.append(3), (error) => error instanceof HeadwaterError && error.status === 403);
  await assert.rejects(former.append(4), { code: "producer_stopped" });
  await assert.rejects(former.flush(), { status: 403 });
  assert.deepEqual((await stream.read()).messages, [1, 2]);
});

test("bytes are joined, and what the stream cannot hold is refused at once", async () => {
  const stream = server.client().stream(`p/${++number}`);
  await stream.create({ contentType: "application/octet-stream" });
  const producer = stream.producer();
  producer.append(Uint8Array.of(1, 2));
  producer.append("3");
  await producer.flush();
  assert.deepEqual((await stream.read()).bytes, Uint8Array.of(1, 2, 0x33));
  await assert.rejects(producer.append({ json: true }), TypeError);
  await assert.rejects((await fresh()).producer().append(undefined), TypeError);
});

test("the buffer is bounded", async () => {
  const stream = await fresh();
  const producer = stream.producer("bounded", { maxBufferBytes: 100 });
  const first = producer.append("x".repeat(80));
  await assert.rejects(producer.append("y".repeat(80)), { code: "buffer_full" });
  await first;
  await producer.append("z".repeat(80));
});

test("on a closed stream everything fails, and nothing hangs", async () => {
  const stream = await fresh();
  await stream.close();
  const producer = stream.producer();
  const all = [producer.append(1), producer.append(2)];
  await assert.rejects(all[0], { code: "stream_closed" });
  await assert.rejects(all[1]);
  await assert.rejects(producer.flush());
});
