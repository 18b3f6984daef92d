import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["suite.test.mjs"],
    // The property tests make hundreds of requests each, and CI machines are slow.
    testTimeout: 30_000,
    hookTimeout: 30_000,
    // One process: stopping vitest leaves nothing behind.
    pool: "threads",
  },
})
