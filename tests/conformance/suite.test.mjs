// The public suite has a command of its own, but it looks for its tests under node_modules, where
// vitest finds none. Calling the suite from a test file of ours is the documented other way.
//
//   HEADWATER_URL                  the server under test (required)
//   HEADWATER_LONG_POLL_BUDGET_MS  how long a long-poll test may take before it counts as hung;
//                                  must be well above the server's own long-poll timeout

import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.HEADWATER_URL
if (!baseUrl) {
  throw new Error("set HEADWATER_URL to the address of a running server, e.g. http://127.0.0.1:4437")
}

runConformanceTests({
  baseUrl,
  longPollTimeoutMs: Number(process.env.HEADWATER_LONG_POLL_BUDGET_MS ?? 10_000),
  subscriptions: true,
})
