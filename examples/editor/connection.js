// Stays connected, and loses nothing that was typed without a connection.
//
// The provider sends what is typed while it is connected. It gives up when it cannot connect, and it
// does not send what was typed meanwhile. So this keeps a second document with what the server is
// known to have: whatever comes from there. When they are in step again, the difference is sent.
import { YjsProvider } from "@durable-streams/y-durable-streams"
import * as Y from "yjs"

const AGAIN_MS = 500

export class Connection {
  constructor(options) {
    const { doc } = options
    this.doc = doc
    this.presence = options.awareness.getLocalState()
    this.stored = new Y.Doc()
    this.wanted = true
    this.onStatus = () => {}
    doc.on("update", (update, origin) => {
      if (origin === "server") Y.applyUpdate(this.stored, update)
      else this.onStatus()
    })
    this.provider = new YjsProvider({ ...options, connect: false })
    this.provider.on("status", (status) => {
      if (status === "disconnected" && this.wanted) setTimeout(() => this.connect(), AGAIN_MS)
      this.onStatus()
    })
    this.provider.on("synced", () => this.catchUp())
    this.provider.on("error", () => {})
    setInterval(() => this.catchUp(), AGAIN_MS)
    this.connect()
  }

  get connected() {
    return this.provider.connected
  }

  // What is here and not known to be stored. An update always says what is deleted, and two
  // deletions side by side become one, so neither its length nor what was inserted tells.
  get missing() {
    const known = Y.encodeStateVector(this.stored)
    const missing = Y.encodeStateAsUpdate(this.doc, known)
    const nothing = Y.encodeStateAsUpdate(this.stored, known)
    const same = missing.length === nothing.length && missing.every((byte, at) => byte === nothing[at])
    return same ? null : missing
  }

  connect() {
    if (!this.wanted || this.provider.connected || this.provider.connecting) return
    if (this.connectedBefore) this.rename()
    this.connectedBefore = true
    this.provider.connect()
  }

  // The provider numbers what it sends from 0 again, under the name of the client: without another
  // one, that would be taken for what was sent before.
  rename() {
    const { doc } = this
    const { awareness } = this.provider
    awareness.clientID = doc.clientID = crypto.getRandomValues(new Uint32Array(1))[0]
    // The provider took it away when it disconnected.
    awareness.setLocalState(this.presence)
  }

  goOffline() {
    this.wanted = false
    this.provider.disconnect()
  }

  goOnline() {
    this.wanted = true
    this.connect()
  }

  // Own updates come back from the server without changing the document, so it is read again to
  // learn what it has. That is only needed when something was typed and nothing comes for a while.
  async catchUp() {
    this.onStatus()
    if (!this.provider.connected || this.busy) return
    const missing = this.missing
    if (!missing) return
    this.busy = true
    try {
      // A flush may wait for a server that is gone.
      await Promise.race([this.provider.flush(), new Promise((resolve) => setTimeout(resolve, AGAIN_MS))])
      await this.read()
      const still = this.missing
      if (still && this.provider.connected) this.doc.emit("update", [still, "again", this.doc])
    } catch {
      // Tried again soon.
    } finally {
      this.busy = false
      this.onStatus()
    }
  }

  // What the server has that this does not know of yet.
  async read() {
    for (;;) {
      const answer = await fetch(`${this.url}?offset=${this.offset ?? "-1"}`)
      if (!answer.ok) {
        this.offset = undefined
        throw new Error(`the server says ${answer.status}`)
      }
      for (const update of frames(new Uint8Array(await answer.arrayBuffer()))) Y.applyUpdate(this.stored, update)
      this.offset = answer.headers.get("Stream-Next-Offset")
      if (answer.headers.has("Stream-Up-To-Date")) return
    }
  }

  get url() {
    return `${this.provider.baseUrl}/docs/${this.provider.docId}`
  }
}

// Updates, each preceded by its length: seven bits to a byte, the lowest first.
function* frames(bytes) {
  let at = 0
  while (at < bytes.length) {
    let length = 0
    let scale = 1
    for (;;) {
      const byte = bytes[at++]
      length += (byte & 0x7f) * scale
      if (byte < 0x80) break
      scale *= 128
    }
    yield bytes.subarray(at, at + length)
    at += length
  }
}
