import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Server, Weather } from "./support.mjs";

let upstream, server;
before(async () => {
  upstream = createServer(async (request, response) => {
    if (request.url === "/refuses") return response.writeHead(418).end("teapot");
    response.writeHead(200, { "Content-Type": "text/event-stream", "X-Asked": request.headers.authorization ?? "" });
    for (let index = 0; !response.destroyed && (request.url === "/endless" || index < 1000); index++) {
      response.write(`data: token ${index} ${request.headers.authorization ?? ""}\n\n`);
      if (index % 5 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    response.end();
  });
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  server = await Server.start("--proxy-allow", `http://127.0.0.1:${upstream.address().port}`);
});
after(async () => {
  await server.stop();
  upstream.closeAllConnections();
  await new Promise((resolve) => upstream.close(resolve));
});
const address = (path) => `http://127.0.0.1:${upstream.address().port}${path}`;
const whole = (key) => Array.from({ length: 1000 }, (_, index) => `data: token ${index} ${key}\n\n`).join("");

test("an answer arrives whole and once while connections are cut, and again from its address", async () => {
  const weather = await Weather.before(server);
  const client = server.client({ url: weather.url });
  const response = await client.fetch(address("/tokens"), { headers: { Authorization: "Bearer up" } });
  assert.equal(response.contentType, "text/event-stream");
  const storm = setInterval(() => weather.cut(), 100);
  const near = response.location.replace(/^http:\/\/[^/]+/, weather.url);
  assert.equal(await client.response(near).text(), whole("Bearer up"));
  clearInterval(storm);
  assert.ok(weather.connections > 3, `${weather.connections} connections`);
  assert.equal(await server.client().response(response.location).text(), whole("Bearer up"));
  await weather.close();
});

test("an endless answer is ended by its reader, and says so", async () => {
  const response = await server.client().fetch(address("/endless"));
  const reader = response.body.getReader();
  assert.ok((await reader.read()).value.length);
  await response.abort();
  while (!(await reader.read()).done);
  assert.equal(response.closeReason, "aborted");
});

test("what the upstream refuses is refused", async () => {
  await assert.rejects(server.client().fetch(address("/refuses")), { status: 502 });
  await assert.rejects(server.client().fetch("http://127.0.0.1:1/elsewhere"), { status: 403 });
});
