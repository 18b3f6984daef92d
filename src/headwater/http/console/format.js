// Numbers, sizes and times for people.

const count = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const number = (value) => (value == null ? "–" : count.format(value));

export function size(bytes) {
  if (bytes == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${short.format(value)} ${units[unit]}`;
}

export const rate = (perSecond) => `${short.format(perSecond)}/s`;

export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const steps = [["s", 60], ["min", 60], ["h", 24], ["d", Infinity]];
  let value = ms / 1000;
  for (const [unit, many] of steps) {
    if (value < many) return `${short.format(value)} ${unit}`;
    value /= many;
  }
}

export function instant(ms) {
  if (ms == null) return "–";
  return new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}
