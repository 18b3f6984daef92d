// Doing something again and again until the person goes elsewhere.

/**
 * Wait; false if the page was left meanwhile.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<boolean>}
 */
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

/**
 * Do it now and every so often. A look that fails is taken again: servers restart.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @param {() => Promise<unknown>} look
 */
export async function every(ms, signal, look) {
  await look();
  while (await pause(ms, signal)) {
    // Nobody looks; and what somebody is about to click on must not be replaced.
    if (document.hidden || isBusy()) continue;
    await look().catch((error) => signal.aborted || console.warn(error));
  }
}

/** Whether somebody is in a dialog, or has selected something to copy it. */
const isBusy = () => Boolean(document.querySelector("dialog[open]")) || getSelection()?.type === "Range";
