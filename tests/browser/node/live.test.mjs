import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import * as headwater from "../../../src/headwater/http/js/headwater.js";
import { Server, until } from "./support.mjs";

let server;
let number = 0;
before(async () => (server = await Server.start()));
after(() => server.stop());

test("keys equal those of the server", () => {
  const { cases } = JSON.parse(readFileSync(process.env.LIVE_KEY_CASES, "utf8"));
  assert.ok(cases.length > 100);
  for (const { entity, where, options, keys, template } of cases) {
    const found = headwater.keyset(entity, where, options);
    assert.deepEqual(found.keys, keys, JSON.stringify({ entity, where, options }));
    assert.equal(found.templateId ?? null, template);
  }
});

test("keys equal the vectors", () => {
  const { tableKey, templateId, templateKey, watchKey, membershipKey, projectedKey, keyId } = headwater;
  const vectors = JSON.parse(readFileSync(process.env.LIVE_KEY_VECTORS, "utf8"));
  const check = (found, { key, id, keyId: short }) => {
    assert.equal(found, key ?? id);
    if (short !== undefined) assert.equal(keyId(found), short);
  };
  for (const each of vectors.table) check(tableKey(each.entity), each);
  for (const each of vectors.templateId) check(templateId(each.entity, each.fields), each);
  for (const each of vectors.templateKey) check(templateKey(each.templateId), each);
  for (const each of vectors.watch) check(watchKey(each.templateId, each.args), each);
  for (const each of vectors.membership) check(membershipKey(each.templateId, each.args), each);
  for (const each of vectors.projectedField) check(projectedKey(each.templateId, each.field, each.args), each);
  for (const each of vectors.keyIdFallback) assert.equal(keyId(each.text), each.keyId);
});

async function table(client = server.client()) {
  const stream = client.stream(`live/${++number}`);
  await stream.create();
  await stream.live().enable();
  const rows = new Map();
  const change = async (id, value) => {
    const old = rows.get(id);
    if (value === undefined) rows.delete(id);
    else rows.set(id, value);
    const operation = value === undefined ? "delete" : old ? "update" : "insert";
    const record = { type: "todos", key: id, headers: { operation } };
    await stream.append({ ...record, ...(value && { value }), ...(old && { old_value: old }) });
  };
  return { stream, rows, change };
}

function follow(live, run, options) {
  const ended = new AbortController();
  const results = [];
  const done = (async () => {
    for await (const result of live.query(run, { entity: "todos", signal: ended.signal, ...options })) results.push(result);
  })();
  return {
    results,
    end: async () => {
      ended.abort();
      await done;
    },
  };
}

test("queries end up with what the table has, and unrelated changes run nothing", async () => {
  const { stream, rows, change } = await table();
  const of = (tenant) => [...rows.values()].filter((row) => row.tenant === tenant).length;
  const queries = ["a", "b"].map((tenant) => follow(stream.live(), () => of(tenant), { where: { tenant }, membershipOnly: true }));
  const whole = follow(stream.live(), () => rows.size, {});
  await until(() => queries.every(({ results }) => results.length === 1) && whole.results.length === 1);
  for (let index = 0; index < 10; index++) await change(`a${index}`, { tenant: "a", title: "x" });
  await until(() => queries[0].results.at(-1) === 10 && whole.results.at(-1) === 10);
  await change("a3", undefined);
  await until(() => queries[0].results.at(-1) === 9 && whole.results.at(-1) === 9);
  assert.equal(queries[1].results.at(-1), 0);
  assert.ok(queries[1].results.length <= 3, "rows of a woke b");
  await change("b1", { tenant: "b" });
  await until(() => queries[1].results.at(-1) === 1);
  for (const query of [...queries, whole]) await query.end();
});

test("no change is missed when the server is killed in between", async () => {
  const other = await Server.start();
  const { stream, rows, change } = await table(other.client());
  const query = follow(stream.live(), () => [...rows.keys()].join(), { where: { tenant: "a" } });
  await until(() => query.results.length === 1);
  await change("1", { tenant: "a" });
  await until(() => query.results.at(-1) === "1");
  await other.kill();
  await other.start();
  await change("2", { tenant: "a" });
  await until(() => query.results.at(-1) === "1,2");
  await query.end();
  await other.stop();
});

test("a stream without live queries says so", async () => {
  const stream = server.client().stream(`live/${++number}`);
  await stream.create();
  const results = stream.live().query(() => 1, { entity: "todos" });
  await assert.rejects(results.next(), { status: 404, code: "not_found" });
});
