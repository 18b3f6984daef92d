import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Fold, HeadwaterError } from "../../../src/headwater/http/js/headwater.js";
import { Server, until } from "./support.mjs";

let server;
let number = 0;
before(async () => (server = await Server.start()));
after(() => server.stop());

async function fresh() {
  const stream = server.client().stream(`state/${++number}`);
  await stream.create();
  return stream;
}

const change = (operation, key, value, headers = {}) => ({ type: "t", key, value, headers: { operation, ...headers } });
const plain = (map) => Object.fromEntries(map ?? []);

test("the rules of folding", () => {
  const fold = new Fold();
  fold.apply([change("insert", "a", 1), change("update", "b", 2), change("upsert", "a", null), change("delete", "x")]);
  assert.deepEqual(plain(fold.entities.get("t")), { a: null, b: 2 });
  fold.apply([{ headers: { control: "snapshot-end" } }, { headers: { control: "snapshot-start" } }, change("insert", "c", 3)]);
  assert.deepEqual(plain(fold.entities.get("t")), { a: null, b: 2 });
  fold.apply([{ headers: { control: "snapshot-end" } }]);
  assert.deepEqual(plain(fold.entities.get("t")), { c: 3 });
  fold.apply([{ headers: { control: "reset", offset: "0000000000000001_0000000000000050" } }, change("insert", "d", 4)], "0000000000000001_0000000000000040");
  fold.apply([change("insert", "e", 5)], "0000000000000001_0000000000000050");
  assert.deepEqual(plain(fold.entities.get("t")), { d: 4 });
  fold.apply([change("insert", "f", 6)], "0000000000000001_0000000000000060");
  assert.deepEqual(plain(fold.entities.get("t")), { d: 4, f: 6 });
});

test("messages fold as in the core", () => {
  const cases = JSON.parse(readFileSync(process.env.FOLD_CASES, "utf8"));
  assert.ok(cases.length > 100);
  for (const { batches, entities } of cases) {
    const fold = new Fold();
    for (const { messages, offset } of batches) fold.apply(messages, offset);
    const shown = [...fold.entities].filter(([, ofType]) => ofType.size).map(([type, ofType]) => [type, plain(ofType)]);
    assert.deepEqual(Object.fromEntries(shown), entities, JSON.stringify(batches));
  }
});

test("a message that is no record is not the end of a state", async () => {
  const stream = await fresh();
  const state = stream.state();
  await state.ready;
  await stream.append(null);
  await stream.append(change("insert", "1", "x"));
  await until(() => state.collection("t").get("1") === "x");
  state.close();
});

test("writes show at once and are confirmed by the stream", async () => {
  const stream = await fresh();
  const state = stream.state();
  const todos = state.collection("t");
  await state.ready;
  const shown = [];
  todos.subscribe((entries) => shown.push(plain(entries)));
  const written = todos.insert("1", { title: "Water" });
  assert.deepEqual(todos.get("1"), { title: "Water" });
  assert.equal(state.pending, 1);
  await written;
  assert.equal(state.pending, 0);
  await todos.update("1", { title: "Water the plants" });
  await todos.delete("1");
  assert.equal(todos.size, 0);
  assert.deepEqual(shown[0], {});
  assert.deepEqual(shown[1], { 1: { title: "Water" } });
  const records = (await stream.read()).messages;
  assert.deepEqual(records.map((record) => record.headers.operation), ["insert", "update", "delete"]);
  assert.deepEqual(records[2].old_value, { title: "Water the plants" });
  state.close();
});

test("what is refused is taken back, and what others wrote meanwhile stays", async () => {
  const stream = await fresh();
  const write = async () => {
    throw new HeadwaterError("not allowed", { status: 403 });
  };
  const state = stream.state({ write });
  const todos = state.collection("t");
  await state.ready;
  const refused = todos.upsert("1", "mine");
  assert.equal(todos.get("1"), "mine");
  await stream.append(change("insert", "2", "theirs"));
  await assert.rejects(refused, { status: 403 });
  await until(() => todos.size === 1);
  assert.deepEqual(plain(todos.entries), { 2: "theirs" });
  state.close();
});

test("a database may name the transaction, before or after the stream tells", async () => {
  const stream = await fresh();
  const write = async ([record]) => {
    await stream.append({ ...record, headers: { ...record.headers, txid: "2057" } });
    await until(() => state.collection("t").get("1") === "x" && state.collection("t").get("marker"));
    return "2057";
  };
  const state = stream.state({ write });
  await state.ready;
  const written = state.collection("t").insert("1", "x");
  await stream.append(change("insert", "marker", true));
  await written;
  assert.equal(state.pending, 0);
  state.close();
});

test("what never comes back is taken back in time", async () => {
  const stream = await fresh();
  const state = stream.state({ write: async () => {}, confirmWithinMs: 100 });
  await state.ready;
  await assert.rejects(state.collection("t").insert("1", "x"), { code: "unconfirmed" });
  assert.equal(state.collection("t").size, 0);
  state.close();
});

test("an answer that is lost takes nothing back: the stream tells", async () => {
  const lossy = async (input, init) => {
    const answer = await fetch(input, init);
    if (init?.method === "POST" && !String(input).endsWith("/follow")) throw new TypeError("lost");
    return answer;
  };
  const name = (await fresh()).path;
  const state = server.client({ fetch: lossy }).stream(name).state();
  await state.ready;
  await state.collection("t").insert("1", "x");
  assert.equal(state.collection("t").get("1"), "x");
  state.close();
});

test("a stream that is deleted and made again is shown anew", async () => {
  const stream = await fresh();
  await stream.append(change("insert", "old", 1));
  const state = server.client().stream(stream.path).state();
  const todos = state.collection("t");
  await until(() => todos.size === 1);
  await stream.delete();
  await until(() => todos.size === 0);
  await stream.create();
  await stream.append(change("insert", "new", 2));
  await until(() => todos.get("new") === 2);
  assert.equal(todos.get("old"), undefined);
  state.close();
});
