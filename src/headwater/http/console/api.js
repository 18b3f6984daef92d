// Requests to the server that this page came from.

const TOKEN = "headwater-token";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

export const streamUrl = (path) => `/v1/stream/${path.split("/").map(encodeURIComponent).join("/")}`;

/** Send a request; anything but success is an ApiError with the server's own words. */
export async function send(method, url, { body, headers = {}, signal } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const authorization = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(url, {
    method,
    body,
    signal,
    headers: { ...authorization, ...headers },
    cache: "no-store",
  });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const { code = `HTTP ${response.status}`, message = response.statusText } = problem.error ?? problem;
  throw new ApiError(response.status, code, message);
}

export const get = async (url, signal) => (await send("GET", url, { signal })).json();

export const post = (url, body) =>
  send("POST", url, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

/** Messages from an offset on, each with its place and time, and where they end. */
export async function messages(path, offset, signal) {
  const url = `${streamUrl(path)}/_bulk?offset=${encodeURIComponent(offset)}&max_bytes=1048576`;
  const response = await send("GET", url, { signal });
  const lines = (await response.text()).split("\n").filter(Boolean);
  return { rows: lines.map(parseLine), next: response.headers.get("Stream-Next-Offset") };
}

/** JSON messages stay the text that they were sent as: a number in them may be more than a Number. */
function parseLine(line) {
  const at = line.indexOf(',"value":');
  if (at < 0) return JSON.parse(line);
  return { ...JSON.parse(`${line.slice(0, at)}}`), value: line.slice(at + 9, -1) };
}

/** Resolves when there is something behind an offset, or the server has waited long enough. */
export async function news(path, offset, signal) {
  const url = `${streamUrl(path)}?offset=${encodeURIComponent(offset)}&live=long-poll`;
  const response = await send("GET", url, { signal });
  await response.body?.cancel();
  return { closed: response.headers.has("Stream-Closed") };
}

/** The server's figures: name → sum over labels, and name{labels} → value. */
export async function figures(signal) {
  const text = await (await send("GET", "/metrics", { signal })).text();
  const found = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const cut = line.lastIndexOf(" ");
    const [whole, value] = [line.slice(0, cut), Number(line.slice(cut + 1))];
    const name = whole.split("{")[0];
    found.set(name, (found.get(name) ?? 0) + value);
    if (whole !== name) found.set(whole, value);
  }
  return found;
}
