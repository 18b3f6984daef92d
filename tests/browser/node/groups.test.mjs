import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Server } from "./support.mjs";

let server;
before(async () => (server = await Server.start()));
after(() => server.stop());

test("members share messages, and a transaction moves them on", async () => {
  const client = server.client();
  const orders = client.stream("orders");
  const done = client.stream("done");
  await orders.create();
  await done.create();
  await orders.append(Array.from({ length: 30 }, (_, id) => ({ id })));
  const group = orders.group("kitchen");
  await group.ensure({ ack_timeout_ms: 10_000 });
  const ended = new AbortController();
  const worked = { ann: 0, ben: 0 };
  const work = async (consumer) => {
    for await (const delivery of group.consume({ consumer, max: 3, signal: ended.signal })) {
      await client.transaction({ ack: [delivery], group, publish: [{ stream: "done", value: delivery.value }] });
      worked[consumer] += 1;
      if (worked.ann + worked.ben === 30) ended.abort();
    }
  };
  await Promise.all([work("ann"), work("ben")]);
  const ids = (await done.read()).messages.map(({ id }) => id);
  assert.deepEqual(ids.sort((a, b) => a - b), Array.from({ length: 30 }, (_, id) => id));
  assert.equal((await group.info()).lag, 0);
});

test("returned messages come again, and old receipts are refused", async () => {
  const stream = server.client().stream("again");
  await stream.create({ contentType: "application/octet-stream" });
  await stream.append(Uint8Array.of(0, 255));
  const group = stream.group("g");
  await group.ensure();
  const [first] = await group.fetch({ consumer: "a" });
  assert.deepEqual(first.bytes, Uint8Array.of(0, 255));
  await first.extend(5000);
  await first.nack();
  const [second] = await group.fetch({ consumer: "a" });
  assert.equal(second.deliveries, 2);
  await assert.rejects(first.ack(), { code: "stale_receipt" });
  await second.ack();
  assert.deepEqual(await group.fetch({ consumer: "a", waitMs: 0 }), []);
  await group.delete();
  await assert.rejects(group.info(), { status: 404 });
});
