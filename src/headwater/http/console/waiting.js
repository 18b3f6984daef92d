// Doing something again and again until the person goes elsewhere.

/** Wait; false if the view was left meanwhile. */
export const pause = (ms, signal) =>
  new Promise((resolve) => {
    if (signal.aborted) return resolve(false);
    const over = () => {
      clearTimeout(timer);
      resolve(false);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", over);
      resolve(true);
    }, ms);
    signal.addEventListener("abort", over, { once: true });
  });

/** Do it now and every so often. A look that fails is taken again: servers restart. */
export async function every(ms, signal, look) {
  await look();
  while (await pause(ms, signal)) {
    if (document.hidden) continue;
    await look().catch((error) => signal.aborted || console.warn(error));
  }
}
