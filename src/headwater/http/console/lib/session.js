// Who is asking, and what they may do.

import { ApiError, dropToken, get, setToken } from "./api.js";

/**
 * @typedef {{access: boolean, name: string | null, expires_at_ms: number | null, administers: boolean,
 *   grants: Record<string, string[]> | null, stream?: Rights & {path: string}}} Caller
 * @typedef {{read: boolean, write: boolean, delete: boolean}} Rights
 */

/** @type {Caller | null} */
let known = null;

/** @returns {Caller | null} the caller as far as it is known */
export const caller = () => known;

/** Ask the server who we are; an ApiError with status 401 if it does not know us. */
export async function identify() {
  known = null;
  known = /** @type {Caller} */ (await get("/v1/whoami"));
  return known;
}

/**
 * Try a key or token. If the server does not take it, it is forgotten again.
 * @param {string} token
 */
export async function signIn(token) {
  setToken(token);
  try {
    return await identify();
  } catch (error) {
    dropToken();
    if (error instanceof ApiError && error.status === 401) {
      throw new ApiError(401, "Not accepted", "The server does not know this key or token, or it has expired or was revoked.");
    }
    throw error;
  }
}

export function signOut() {
  dropToken();
  known = null;
}

/** Whether the caller may see and change what belongs to the server as a whole. */
export const administers = () => known?.administers ?? false;

/**
 * What the caller may do with a stream.
 * @param {string} path
 * @param {AbortSignal} signal
 * @returns {Promise<Rights>}
 */
export async function rightsOver(path, signal) {
  if (known && !known.access) return { read: true, write: true, delete: true };
  const answer = /** @type {Caller} */ (await get(`/v1/whoami?stream=${encodeURIComponent(path)}`, signal));
  return answer.stream ?? { read: false, write: false, delete: false };
}
