import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { HeadwaterError } from "../../../src/headwater/http/js/headwater.js";
import { collect, Server, until, Weather } from "./support.mjs";

let server;
let number = 0;
before(async () => (server = await Server.start()));
after(() => server.stop());

async function fresh(contentType = "application/json", client = server.client()) {
  const stream = client.stream(`s/${++number}`);
  await stream.create({ contentType });
  return stream;
}

test("what is there comes first, then what is appended", async () => {
  const stream = await fresh();
  await stream.append([1, 2]);
  const seen = collect(stream, 5);
  for (const each of [3, 4, 5]) await stream.append(each);
  assert.deepEqual(await seen, [1, 2, 3, 4, 5]);
});

test("a closed stream ends the loop", async () => {
  const stream = await fresh();
  await stream.append("a");
  const seen = (async () => {
    const all = [];
    for await (const batch of stream.follow()) all.push(...batch.messages);
    return all;
  })();
  await stream.append("b");
  await stream.close();
  assert.deepEqual(await seen, ["a", "b"]);
});

test("bytes and text arrive as they were sent", async () => {
  const bytes = await fresh("application/octet-stream");
  const sent = Uint8Array.from({ length: 70_000 }, (_, index) => index & 255);
  const text = await fresh("text/plain");
  const read = async (stream, size) => {
    const ended = new AbortController();
    const parts = [];
    for await (const batch of stream.follow({ signal: ended.signal })) {
      parts.push(...batch.bytes);
      if (parts.length >= size) ended.abort();
    }
    return Uint8Array.from(parts);
  };
  const seen = read(bytes, 2 * sent.length);
  await bytes.append(sent);
  await bytes.append(sent);
  assert.deepEqual(await seen, Uint8Array.from([...sent, ...sent]));
  const line = "zwei\nZeilen für dich\n";
  const lines = read(text, new TextEncoder().encode(line).length);
  await text.append(line);
  assert.equal(new TextDecoder().decode(await lines), line);
});

test("twenty streams are followed over one connection", async () => {
  const weather = await Weather.before(server);
  const client = server.client({ url: weather.url });
  const streams = [];
  for (let index = 0; index < 20; index++) streams.push(await fresh("application/json", client));
  const seen = Promise.all(streams.map((stream) => collect(stream, 2)));
  await until(() => server.client().stream(streams[19].path).info().then(() => weather.open <= 8));
  for (const stream of streams) await server.client().stream(stream.path).append([stream.path, "more"]);
  assert.deepEqual(await seen, streams.map((stream) => [stream.path, "more"]));
  client.close();
  await weather.close();
});

test("nothing is lost or repeated while connections are cut", async () => {
  const weather = await Weather.before(server);
  weather.cutAfter = () => 300 + Math.floor(Math.random() * 3000);
  const client = server.client({ url: weather.url });
  const name = (await fresh()).path;
  const seen = collect(client.stream(name), 300);
  const writer = server.client().stream(name);
  for (let index = 0; index < 300; index += 3) {
    await writer.append([index, index + 1, index + 2]);
    if (index % 60 === 0) weather.cut();
  }
  assert.deepEqual(await seen, Array.from({ length: 300 }, (_, index) => index));
  client.close();
  await weather.close();
});

test("a follower outlives kill -9 of the server, and a producer stores everything once", async () => {
  const other = await Server.start();
  const stream = other.client().stream("survivor");
  await stream.create();
  const seen = collect(stream, 400);
  const producer = stream.producer("tester");
  const stored = [];
  for (let index = 0; index < 400; index++) {
    stored.push(producer.append({ index }));
    if (index % 200 === 65) {
      await other.kill();
      const restarted = other.start();
      await new Promise((resolve) => setTimeout(resolve, 30));
      await restarted;
    }
    if (index % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await producer.flush();
  await Promise.all(stored);
  assert.deepEqual((await seen).map(({ index }) => index), Array.from({ length: 400 }, (_, index) => index));
  await other.stop();
});

test("a slow server is waited for", async () => {
  const weather = await Weather.before(server);
  weather.delayMs = 400;
  const client = server.client({ url: weather.url });
  const stream = client.stream((await fresh()).path);
  const seen = collect(stream, 2);
  await stream.append(1);
  await stream.append(2);
  assert.deepEqual(await seen, [1, 2]);
  client.close();
  await weather.close();
});

test("deleted: the loop throws; made again: old offsets are refused", async () => {
  const stream = await fresh();
  await stream.append([1, 2, 3]);
  const { offset } = await stream.info();
  const following = collect(stream, 99);
  following.catch(() => {});
  await until(async () => (await (await fetch(`${server.url}${stream.url}/_details`)).json()).readers === 1);
  await stream.delete();
  await assert.rejects(following, (error) => error instanceof HeadwaterError && error.status === 404);
  await stream.create();
  await stream.append("new");
  await assert.rejects(stream.read({ offset }), HeadwaterError);
  assert.deepEqual(await collect(stream, 1), ["new"]);
});

test("a server without shared connections is followed stream by stream", async () => {
  const refusing = async (input, init) =>
    String(input).endsWith("/v1/follow") ? new Response("not here", { status: 404 }) : fetch(input, init);
  const client = server.client({ fetch: refusing });
  const stream = client.stream((await fresh()).path);
  const seen = collect(stream, 3);
  for (const each of [1, 2, 3]) await stream.append(each);
  assert.deepEqual(await seen, [1, 2, 3]);
  client.close();
});

test("an append that may have been stored is not repeated", async () => {
  let posts = 0;
  const lossy = async (input, init) => {
    const answer = await fetch(input, init);
    if (init?.method !== "POST") return answer;
    posts += 1;
    throw new TypeError("the answer was lost");
  };
  const stream = server.client({ fetch: lossy }).stream((await fresh()).path);
  await assert.rejects(stream.append(1), (error) => error.isInDoubt);
  assert.equal(posts, 1);
  const kept = server.client().stream(stream.path);
  assert.deepEqual((await kept.read()).messages, [1]);
});
