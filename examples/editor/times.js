// From a key to other screens: each edit says when it was made, and whoever shows it looks at the
// clock. Between two machines that is as exact as their clocks.
const KEPT = 200

export const now = () => performance.timeOrigin + performance.now()

export class Times {
  constructor(doc, canvas, label) {
    this.seen = []
    this.canvas = canvas
    this.label = label
    const typed = doc.getMap("typed")
    // Right after the edit, so that it is sent together with it.
    doc.on("afterTransaction", (transaction) => {
      if (transaction.local && transaction.changed.has(doc.getText("content"))) {
        typed.set(String(doc.clientID), now())
      }
    })
    typed.observe((event, transaction) => {
      if (transaction.origin !== "server") return
      const made = Math.max(...[...event.keysChanged].map((key) => typed.get(key)))
      // What was made long ago was read now, not typed now.
      if (now() - made > 60_000) return
      requestAnimationFrame(() => this.add(now() - made))
    })
  }

  add(took) {
    this.seen.push(took)
    if (this.seen.length > KEPT) this.seen.shift()
    this.draw()
  }

  quantile(share) {
    const sorted = [...this.seen].sort((a, b) => a - b)
    return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]
  }

  draw() {
    const { canvas, seen } = this
    const at = canvas.getContext("2d")
    const width = canvas.width / KEPT
    const most = Math.max(50, ...seen)
    at.clearRect(0, 0, canvas.width, canvas.height)
    seen.forEach((took, index) => {
      const height = (took / most) * canvas.height
      at.fillStyle = took > 50 ? "#d9822b" : "#2b7bd9"
      at.fillRect(index * width, canvas.height - height, Math.max(1, width - 1), height)
    })
    const shown = [0.5, 0.99].map((share) => `${this.quantile(share).toFixed(0)} ms`)
    this.label.textContent = `key to this screen: median ${shown[0]}, p99 ${shown[1]} of ${seen.length}`
  }
}
