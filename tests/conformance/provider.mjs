// The published Yjs provider against a Headwater server: `node provider.mjs CASE URL`.
// Prints one line of JSON, or fails.
import assert from "node:assert/strict"
import { createInterface } from "node:readline"
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { Awareness } from "y-protocols/awareness"
import * as Y from "yjs"

const PATIENCE_MS = 60_000
const [, , name, url] = process.argv
const baseUrl = `${url}/v1/yjs/provider`
const open = []

async function until(condition, what) {
  const deadline = Date.now() + PATIENCE_MS
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `it did not come true: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function join(docId, options = {}) {
  const doc = new Y.Doc()
  const awareness = new Awareness(doc)
  const provider = new YjsProvider({ doc, baseUrl, docId, awareness, ...options })
  const editor = { doc, awareness, provider, text: doc.getText("content") }
  provider.on("error", () => {})
  open.push(editor)
  return editor
}

async function joined(docId, options) {
  const editor = join(docId, options)
  await until(() => editor.provider.synced, "the first sync")
  return editor
}

const said = (editor) => editor.text.toString()
const location = async (docId) =>
  (await fetch(`${baseUrl}/docs/${docId}?offset=snapshot`, { redirect: "manual" })).headers.get("location")

const cases = {
  async sync() {
    for (const liveMode of ["sse", "long-poll"]) {
      const docId = `sync-${liveMode}/nested`
      const a = await joined(docId, { liveMode })
      a.text.insert(0, "hello")
      const b = await joined(docId, { liveMode })
      await until(() => said(b) === "hello", "what was there")
      b.text.insert(5, " world")
      await until(() => said(a) === "hello world", "what comes later")
      a.text.delete(0, 6)
      await until(() => said(b) === "world", "a deletion")
    }
  },

  async concurrent() {
    const [a, b] = [await joined("concurrent"), await joined("concurrent")]
    a.text.insert(0, "AAA")
    b.text.insert(0, "BBB")
    await until(() => said(a) === said(b) && said(a).length === 6, "convergence")
  },

  async rapid() {
    const a = await joined("rapid")
    const words = "The quick brown fox jumps over the lazy dog. ".repeat(20)
    for (let i = 0; i < words.length; i++) a.text.insert(i, words[i])
    await a.provider.flush()
    const b = await joined("rapid")
    await until(() => said(b) === words, "all that was typed")
  },

  async awareness() {
    const [a, b] = [await joined("awareness"), await joined("awareness")]
    await until(() => {
      a.awareness.setLocalStateField("user", { name: "Ada" })
      return b.awareness.getStates().get(a.doc.clientID)?.user?.name === "Ada"
    }, "presence")
    a.provider.destroy()
    await until(() => !b.awareness.getStates().has(a.doc.clientID), "absence")
  },

  async compaction() {
    const a = await joined("compaction")
    for (let i = 0; i < 40; i++) {
      a.text.insert(a.text.length, "x".repeat(200))
      await a.provider.flush()
    }
    await until(async () => (await location("compaction")).includes("_snapshot"), "a snapshot")
    a.text.insert(a.text.length, "after")
    const b = await joined("compaction")
    await until(() => said(b) === said(a), "the snapshot and what comes after it")
    b.text.insert(0, "before ")
    await until(() => said(a).startsWith("before "), "updates of one who began with a snapshot")
  },

  async missing() {
    const provider = new YjsProvider({ doc: new Y.Doc(), baseUrl, docId: "no.such", connect: false })
    const errors = []
    provider.on("error", (error) => errors.push(error.message))
    await provider.connect()
    assert.match(errors[0], /400/)
  },

  async reconnect() {
    const a = await joined("reconnect")
    a.text.insert(0, "one")
    await a.provider.flush()
    await a.provider.disconnect()
    await connectAgain(a)
    await until(() => a.provider.synced, "another sync")
    a.text.insert(3, " two")
    const b = await joined("reconnect")
    await until(() => said(b) === "one two", "both")
  },

  // Editors that go on while the server is killed and started again, told so on stdin.
  async killed() {
    const editors = await Promise.all(Array.from({ length: 4 }, () => joined("killed")))
    for (const editor of editors) keepConnected(editor)
    let over = false
    createInterface({ input: process.stdin }).on("line", () => (over = true))
    console.error("ready")
    let number = 0
    while (!over || number < 200) {
      const { text } = editors[number % editors.length]
      text.insert(Math.floor(Math.random() * (text.length + 1)), `<${number++}>`)
      if (number % 7 === 0) text.delete(0, 1)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    const states = () => editors.map(({ doc }) => Buffer.from(Y.encodeStateVector(doc)).toString("hex"))
    const content = () => new Set([...editors.map(said)])
    await until(() => {
      for (const editor of editors) resend(editor)
      return editors.every((e) => e.provider.synced) && content().size === 1 && new Set(states().map(sorted)).size === 1
    }, "convergence")
    const late = await joined("killed")
    await until(() => said(late) === said(editors[0]), "the same for one who joins late")
    return { edits: number, length: said(late).length }
  },

  // What Python made: a snapshot in which updates wait for others, then those.
  async pending() {
    let count = 0
    for await (const line of createInterface({ input: process.stdin })) {
      const { updates, expected } = JSON.parse(line)
      const doc = new Y.Doc()
      for (const update of updates) Y.applyUpdate(doc, Buffer.from(update, "base64"))
      assert.equal(doc.getText("text").toString(), expected)
      count++
    }
    return { count }
  },
}

const sorted = (hex) => [...hex].sort().join("")

// The provider gives up when it cannot connect, and does not send what was typed meanwhile.
function keepConnected(editor) {
  editor.stored = new Y.Doc()
  Y.applyUpdate(editor.stored, Y.encodeStateAsUpdate(editor.doc))
  editor.doc.on("update", (update, origin) => {
    if (origin === "server") Y.applyUpdate(editor.stored, update)
  })
  const again = () => setTimeout(() => connectAgain(editor), 100)
  editor.provider.on("status", (status) => status === "disconnected" && again())
  editor.provider.on("synced", (synced) => synced && resend(editor))
}

// It numbers what it sends from 0 again, under the name of the client: without another one, that
// would be taken for what was sent before.
function connectAgain(editor) {
  editor.doc.clientID = Math.floor(Math.random() * 2 ** 31)
  return editor.provider.connect()
}

function resend(editor) {
  const { doc, stored, provider } = editor
  if (!provider.connected || !stored) return
  const missing = Y.encodeStateAsUpdate(doc, Y.encodeStateVector(stored))
  const nothing = Y.encodeStateAsUpdate(stored, Y.encodeStateVector(stored))
  if (missing.length > nothing.length && Date.now() - (editor.resent ?? 0) > 500) {
    editor.resent = Date.now()
    doc.emit("update", [missing, "again", doc])
  }
}

console.log(JSON.stringify((await cases[name]()) ?? {}))
for (const { provider } of open) provider.destroy()
process.exit(0)
