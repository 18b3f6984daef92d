// The published AI transports against a Headwater server: `node transports.mjs URL`.
//
// The server ends event streams all the time, so every read is dropped and resumed more than once. What is
// said to be true here is asserted; the process ends with 0 if all of it is.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport";
import {
  durableStreamConnection,
  materializeSnapshotFromDurableStream,
  toDurableChatSessionResponse,
} from "@durable-streams/tanstack-ai-transport";

const headwater = process.argv[2];
const TOKENS = 60;
const PAUSE_MS = 10;

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
const streamAt = (path) => `${headwater}/v1/stream/${path}`;

/** An application's server: handlers by path get the parsed body and give a fetch `Response`. */
async function application(handlers) {
  const server = createServer(async (incoming, outgoing) => {
    const { pathname } = new URL(incoming.url, "http://localhost");
    const parts = [];
    for await (const part of incoming) parts.push(part);
    const body = parts.length ? JSON.parse(Buffer.concat(parts)) : undefined;
    const response = await handlers[pathname](body);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.end(Buffer.from(await response.arrayBuffer()));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

async function aiSdk() {
  const chunks = [
    { type: "start", messageId: "m1" },
    { type: "text-start", id: "t" },
    ...Array.from({ length: TOKENS }, (_, n) => ({ type: "text-delta", id: "t", delta: `word ${n} ✓ ` })),
    { type: "text-end", id: "t" },
    { type: "finish" },
  ];
  let asked = 0;
  async function* generate() {
    asked += 1;
    for (const chunk of chunks) {
      await pause();
      yield chunk;
    }
  }
  const stream = { writeUrl: streamAt("ai/chat-1") };
  const app = await application({
    "/api/chat": () => toDurableStreamResponse({ source: generate(), stream }),
    "/api/chat/chat-1/stream": () => Response.json({ streamUrl: stream.writeUrl }),
    "/api/chat/chat-2/stream": () => new Response(null, { status: 204 }),
  });
  const transport = createDurableChatTransport({ api: `${app.url}/api/chat` });

  // The tab that asked reads a little and is gone.
  const first = await transport.sendMessages({ trigger: "submit-message", chatId: "chat-1", messages: [] });
  const reader = first.getReader();
  for (let n = 0; n < 10; n++) assert.deepEqual((await reader.read()).value, chunks[n]);
  await reader.cancel();

  // After a reload, and on a second device at the same time, everything is there, once.
  const read = async () => {
    const found = [];
    for await (const chunk of await transport.reconnectToStream({ chatId: "chat-1" })) found.push(chunk);
    return found;
  };
  for (const found of await Promise.all([read(), read()])) assert.deepEqual(found, chunks);
  assert.deepEqual(await read(), chunks, "after it has ended");
  assert.equal(asked, 1);
  assert.equal(await transport.reconnectToStream({ chatId: "chat-2" }), null);
  app.close();
}

async function tanStack() {
  const about = { messageId: "a1", model: "fake", timestamp: 1 };
  const text = Array.from({ length: TOKENS }, (_, n) => `word ${n} ✓ `);
  async function* generate() {
    yield { type: "TEXT_MESSAGE_START", role: "assistant", ...about };
    for (const delta of text) {
      await pause();
      yield { type: "TEXT_MESSAGE_CONTENT", delta, ...about };
    }
    yield { type: "TEXT_MESSAGE_END", ...about };
  }
  const stream = { writeUrl: streamAt("ai/session-1") };
  const app = await application({
    "/api/chat": ({ messages }) =>
      toDurableChatSessionResponse({ stream, newMessages: messages.slice(-1), responseStream: generate() }),
  });
  const question = { id: "u1", role: "user", parts: [{ type: "text", content: "why?" }] };
  const options = { sendUrl: `${app.url}/api/chat`, readUrl: stream.writeUrl };
  const connection = durableStreamConnection(options);
  await connection.send([question]);

  // Reads until the answer has ended or is dropped; what a subscription yields first is a snapshot.
  async function follow(connection, most = Infinity) {
    const aborter = new AbortController();
    let heard = "";
    let snapshot = "";
    let count = 0;
    for await (const chunk of connection.subscribe(aborter.signal)) {
      if (chunk.type === "MESSAGES_SNAPSHOT") {
        const answer = chunk.messages.find((message) => message.id === about.messageId);
        snapshot = answer?.parts.map((part) => part.content).join("") ?? "";
        if (snapshot === text.join("")) break;
      } else if (chunk.messageId === about.messageId) {
        if (chunk.type === "TEXT_MESSAGE_CONTENT") heard += chunk.delta;
        if (chunk.type === "TEXT_MESSAGE_END") break;
        if (++count >= most) break;
      }
    }
    aborter.abort();
    return snapshot + heard;
  }
  // The same connection goes on where it was; another one, on a second device, begins with a snapshot.
  const begun = await follow(connection, 10);
  assert.ok(begun.length > 0 && text.join("").startsWith(begun));
  const [whole, elsewhere] = await Promise.all([
    follow(durableStreamConnection(options)),
    follow(durableStreamConnection(options)),
  ]);
  assert.equal(whole, text.join(""));
  assert.equal(elsewhere, text.join(""));
  const { messages } = await materializeSnapshotFromDurableStream({ readUrl: stream.writeUrl });
  assert.deepEqual(messages.map((message) => message.id), ["u1", "a1"]);
  assert.equal(messages[1].parts[0].content, text.join(""));
  app.close();
}

await aiSdk();
await tanStack();
console.log("ok");
process.exit(0);
