// Starts the published Yjs server for the benchmarks, in front of the published reference server.
//
//   node serve_yjs.mjs PORT memory
//   node serve_yjs.mjs PORT file DATA_DIR
//
// Each has a process of its own, as if they were on two machines: one event loop for both would be slower.

import { fork } from "node:child_process"
import { createServer } from "node:net"
import { YjsServer } from "@durable-streams/y-durable-streams/server"

const [port, ...store] = process.argv.slice(2)
const SHUTDOWN_GRACE_MS = 5_000

const streamsPort = await freePort()
const streams = fork(new URL("serve.mjs", import.meta.url), [String(streamsPort), ...store])
const server = new YjsServer({ port: Number(port), dsServerUrl: `http://127.0.0.1:${streamsPort}` })

streams.on("exit", (code) => process.exit(code ?? 1))
process.on("SIGTERM", stop)
process.on("SIGINT", stop)
await ready(`http://127.0.0.1:${streamsPort}/v1/stream/no-such-stream`)
await server.start()

function stop() {
  setTimeout(() => process.exit(0), SHUTDOWN_GRACE_MS).unref()
  streams.kill("SIGTERM")
}

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address()
      probe.close(() => resolve(port))
    })
  })
}

async function ready(url) {
  for (;;) {
    try {
      await fetch(url, { method: "HEAD" })
      return
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}
