// Starts the published reference server for the benchmarks.
//
//   node serve.mjs PORT memory
//   node serve.mjs PORT file DATA_DIR

import { DurableStreamTestServer } from "@durable-streams/server"

const [port, store, dataDir] = process.argv.slice(2)
if (!Number(port) || !["memory", "file"].includes(store) || (store === "file" && !dataDir)) {
  console.error("usage: node serve.mjs PORT memory | PORT file DATA_DIR")
  process.exit(2)
}

// The server writes a line for every append slower than 50 ms. Under load that is most of them,
// and formatting them would be measured as if it were the cost of an append.
console.info = () => {}
console.log = () => {}

const server = new DurableStreamTestServer({
  port: Number(port),
  host: "127.0.0.1",
  dataDir: store === "file" ? dataDir : undefined,
})

const SHUTDOWN_GRACE_MS = 5_000

async function stop() {
  // A hung connection must not keep the process, and with it the benchmark, alive.
  setTimeout(() => process.exit(0), SHUTDOWN_GRACE_MS).unref()
  await server.stop()
  process.exit(0)
}
process.on("SIGTERM", stop)
process.on("SIGINT", stop)

await server.start()
