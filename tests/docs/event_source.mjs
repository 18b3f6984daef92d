// As much of a browser as the page in the tutorial needs: EventSource over fetch, and a document
// that prints what is appended to it. Like the real one, an EventSource that is not closed in its
// error handler would connect again to the URL it began with; here that is an error at once.

globalThis.EventSource = class {
  #listeners = {};
  #abort = new AbortController();
  #closed = false;

  constructor(url) {
    this.#read(url);
  }

  addEventListener(type, listener) {
    this.#listeners[type] = listener;
  }

  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  async #read(url) {
    try {
      const response = await fetch(url, { signal: this.#abort.signal });
      if (response.status !== 200) throw new Error(`${url} answered ${response.status}`);
      console.log("(connected)");
      let rest = "";
      for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
        const events = (rest + text).split("\n\n");
        rest = events.pop();
        for (const event of events) this.#dispatch(event);
      }
    } catch (error) {
      if (!this.#closed) console.error(error);
    }
    if (this.#closed) return;
    this.onerror({ type: "error" });
    if (!this.#closed) throw new Error("the page left the EventSource open");
  }

  #dispatch(event) {
    const lines = event.split("\n").filter((line) => !line.startsWith(":"));
    const values = (name) =>
      lines
        .filter((line) => line.startsWith(`${name}:`))
        .map((line) => line.slice(name.length + 1).replace(/^ /, ""));
    const [type] = values("event");
    if (!this.#closed) this.#listeners[type]?.({ type, data: values("data").join("\n") });
  }
};

globalThis.document = {
  createElement: () => ({ textContent: "" }),
  body: { append: (element) => console.log(element.textContent) },
};
