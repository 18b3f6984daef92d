import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["suite.test.mjs"],
    // The property tests make hundreds of requests each, and CI machines are slow.
    testTimeout: 30_000,
    hookTimeout: 30_000,
    // The suite leaves a server half a second here and there: a TTL of two seconds and a look after
    // one and a half, say. A machine that stalls for longer than that may well do so once, so what
    // failed is tried again. What is wrong with the server is still wrong then.
    retry: 2,
    // One process: stopping vitest leaves nothing behind.
    pool: "threads",
  },
})
