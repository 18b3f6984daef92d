import { defaultKeymap } from "@codemirror/commands"
import { EditorState } from "@codemirror/state"
import { EditorView, keymap, lineNumbers } from "@codemirror/view"
import { yCollab, yUndoManagerKeymap } from "y-codemirror.next"
import { Awareness } from "y-protocols/awareness"
import * as Y from "yjs"
import { Connection } from "./connection.js"
import { Times } from "./times.js"

const NAMES = ["Ada", "Grace", "Edsger", "Barbara", "Donald", "Radia", "Ken", "Frances"]
const COLORS = ["#e5484d", "#0090ff", "#30a46c", "#f76b15", "#8e4ec6", "#12a594"]
const any = (list) => list[Math.floor(Math.random() * list.length)]
const show = (id) => document.getElementById(id)

const { server } = await (await fetch("/config")).json()
const docId = location.hash.slice(1) || "welcome"
const doc = new Y.Doc()
const text = doc.getText("content")
const awareness = new Awareness(doc)
const color = any(COLORS)
const user = { name: any(NAMES), color, colorLight: `${color}33` }
awareness.setLocalStateField("user", user)
new Times(doc, show("times"), show("times-label"))
const connection = new Connection({ doc, awareness, baseUrl: `${server}/v1/yjs/editor`, docId })

new EditorView({
  parent: show("editor"),
  state: EditorState.create({
    doc: text.toString(),
    extensions: [
      lineNumbers(),
      EditorView.lineWrapping,
      keymap.of([...yUndoManagerKeymap, ...defaultKeymap]),
      yCollab(text, awareness, { undoManager: new Y.UndoManager(text) }),
    ],
  }),
})

function status() {
  const state = !connection.wanted ? "offline" : connection.connected ? "connected" : "connecting …"
  show("status").textContent = `${state}, ${connection.missing ? "not everything is stored" : "everything is stored"}`
  show("status").className = connection.connected ? "good" : "bad"
}

function people() {
  const users = [...awareness.getStates().values()].map((state) => state.user).filter(Boolean)
  show("people").replaceChildren(
    ...users.map(({ name, color }) => {
      const badge = document.createElement("span")
      badge.textContent = name
      badge.style.background = color
      return badge
    }),
  )
}

show("title").textContent = docId
show("network").onclick = () => {
  if (connection.wanted) connection.goOffline()
  else connection.goOnline()
  show("network").textContent = connection.wanted ? "Go offline" : "Go online"
  status()
}
connection.onStatus = status
awareness.on("change", people)
status()
people()

window.session = { text: () => text.toString(), isStored: () => !connection.missing, connection }
