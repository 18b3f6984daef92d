// Addresses within the console: #/stream/{path}/{tab}?{query}.

/** @param {string} path @param {string} [tab] */
export const linkTo = (path, tab = "") => `#/stream/${encodeURIComponent(path)}${tab && `/${tab}`}`;

/** @param {string} path @param {string} group */
export const groupLink = (path, group) => `#/group/${encodeURIComponent(path)}/${encodeURIComponent(group)}`;

/**
 * @param {string} hash
 * @returns {{parts: string[], query: URLSearchParams}}
 */
export function parseHash(hash) {
  const [place = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { parts: place.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
