// A server that a test can kill, and a network that fails, for tests of the browser module in node.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Headwater } from "../../../src/headwater/http/js/headwater.js";

const PATIENCE_MS = 60_000;

export async function until(condition, what = String(condition)) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`never true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function freePort() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

export class Server {
  #process;

  static async start(...args) {
    const server = new Server();
    server.data = mkdtempSync(join(tmpdir(), "headwater-js-"));
    server.port = await freePort();
    server.url = `http://127.0.0.1:${server.port}`;
    server.args = ["-m", "headwater", "serve", "--port", String(server.port), "--data", server.data, ...args];
    await server.start();
    return server;
  }

  async start() {
    this.#process = spawn(process.env.HEADWATER_PYTHON ?? "python3", this.args, { stdio: "ignore" });
    const started = this.#process;
    await until(async () => {
      if (started.exitCode !== null) throw new Error(`the server ended with ${started.exitCode}`);
      return fetch(`${this.url}/healthz`).then((answer) => answer.ok).catch(() => false);
    }, "the server answers");
  }

  async #end(signal) {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.kill(signal);
    await ended;
  }

  /** As a crash would. */
  kill() {
    return this.#end("SIGKILL");
  }

  async stop() {
    await this.#end("SIGTERM");
    rmSync(this.data, { recursive: true, force: true });
  }

  client(options = {}) {
    return new Headwater({ url: this.url, ...options });
  }
}

/** A way to the server that cuts connections after some bytes, or holds everything back. */
export class Weather {
  connections = 0;
  #open = new Set();
  /** How many bytes of answers a connection lives for. */
  cutAfter = Infinity;
  delayMs = 0;

  static async before(server) {
    const weather = new Weather();
    weather.listener = createServer((near) => weather.#pass(near, server.port));
    await new Promise((resolve) => weather.listener.listen(0, "127.0.0.1", resolve));
    weather.url = `http://127.0.0.1:${weather.listener.address().port}`;
    return weather;
  }

  #pass(near, port) {
    this.connections += 1;
    this.#open.add(near);
    const far = connect(port, "127.0.0.1");
    const cut = () => {
      near.destroy();
      far.destroy();
      this.#open.delete(near);
    };
    let left = typeof this.cutAfter === "function" ? this.cutAfter() : this.cutAfter;
    near.on("data", (data) => far.write(data));
    far.on("data", (data) => {
      const pass = () => {
        near.write(data.subarray(0, left));
        left -= data.length;
        if (left <= 0) setImmediate(cut);
      };
      if (this.delayMs) setTimeout(pass, this.delayMs);
      else pass();
    });
    near.on("error", cut).on("close", cut);
    far.on("error", cut).on("close", () => setTimeout(cut, 2 * this.delayMs));
  }

  get open() {
    return this.#open.size;
  }

  /** Cut everything now. */
  cut() {
    for (const near of [...this.#open]) near.destroy();
  }

  close() {
    this.cut();
    return new Promise((resolve) => this.listener.close(resolve));
  }
}

/** Collect messages until there are so many. */
export async function collect(stream, count, options = {}) {
  const ended = new AbortController();
  const messages = [];
  if (!count) return messages;
  for await (const batch of stream.follow({ signal: ended.signal, ...options })) {
    messages.push(...batch.messages);
    if (messages.length >= count) ended.abort();
  }
  return messages;
}
