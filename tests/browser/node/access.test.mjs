import assert from "node:assert/strict";
import { test } from "node:test";
import { Headwater } from "../../../src/headwater/http/js/headwater.js";
import { collect } from "./support.mjs";

// Answers as a server with access control does whose tokens expire after a few requests.
function guarded(lifetime) {
  let [token, left, requests] = [0, 0, 0];
  const append = [];
  const waiting = new Set();
  const fetch = async (input, { method, headers, body, signal }) => {
    requests += 1;
    if (headers.Authorization !== `Bearer ${token}` || left-- <= 0) return Response.json({ error: { code: "unauthorized", message: "who?" } }, { status: 401 });
    if (String(input).endsWith("/v1/follow")) return Response.json({}, { status: 404 });
    const url = new URL(input);
    if (method === "POST") {
      append.push(body);
      waiting.forEach((wake) => wake());
      return new Response(null, { status: 204, headers: { "Stream-Next-Offset": String(append.length) } });
    }
    const at = Number(url.searchParams.get("offset") ?? 0);
    const from = at < 0 ? 0 : at;
    const common = { "Content-Type": "application/json", "Stream-Next-Offset": String(append.length), "Stream-Up-To-Date": "true" };
    if (url.searchParams.get("live") !== "sse") return new Response(`[${append.slice(from)}]`, { headers: common });
    await new Promise((resolve) => {
      if (append.length > from) return resolve();
      waiting.add(resolve);
      signal.addEventListener("abort", resolve);
    });
    const events = `event: data\ndata:[${append.slice(from)}]\n\nevent: control\ndata:{"streamNextOffset":"${append.length}","upToDate":true}\n\n`;
    return new Response(events, { headers: { "Content-Type": "text/event-stream" } });
  };
  const renew = async (again) => {
    if (again || !token) {
      token += 1;
      left = lifetime;
    }
    return { Authorization: `Bearer ${token}` };
  };
  return { fetch, renew, count: () => requests };
}

test("a token that expires is renewed in the middle", async () => {
  const { fetch, renew } = guarded(2);
  const client = new Headwater({ url: "http://example.test", fetch, headers: renew });
  const stream = client.stream("s");
  const seen = collect(stream, 10);
  for (let index = 0; index < 10; index++) await stream.append(index);
  assert.deepEqual(await seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  client.close();
});

test("a token that cannot be renewed ends the loop with the refusal", async () => {
  const { fetch, count } = guarded(0);
  const client = new Headwater({ url: "http://example.test", fetch, headers: { Authorization: "Bearer old" } });
  await assert.rejects(collect(client.stream("s"), 1), { status: 401, code: "unauthorized" });
  assert.equal(count(), 1);
  client.close();
});
