// What somebody looks for in messages: a text, and a condition on a value inside of JSON.
//
//   total > 20          a number, by its place in the message
//   $.items[0].name = tea
//   items[*].name ~ te  any of them contains it
//   customer.email      it is there and not null

const STEP = /\.?([A-Za-z_$][\w$-]*)|\[(\d+|\*)\]|\["((?:[^"\\]|\\.)*)"\]/y;
const CONDITION = /^\s*(!=|<=|>=|=|<|>|~)\s*([^]*)$/;

/** @typedef {{steps: (string | number)[], operator: string, value: unknown}} Condition */

/**
 * @param {string} text
 * @returns {Condition | null} null if there is no condition
 */
export function parseCondition(text) {
  const source = text.trim().replace(/^\$(?=[.[\s!<>=~]|$)/, "");
  if (!text.trim()) return null;
  /** @type {(string | number)[]} */
  const steps = [];
  let at = 0;
  while (at < source.length) {
    STEP.lastIndex = at;
    const found = STEP.exec(source);
    if (!found) break;
    const [whole, name, index, quoted] = found;
    steps.push(name ?? (index === undefined ? JSON.parse(`"${quoted}"`) : index === "*" ? "*" : Number(index)));
    at += whole.length;
  }
  const rest = source.slice(at);
  if (!rest.trim()) return { steps, operator: "is there", value: null };
  const [, operator, value] = rest.match(CONDITION) ?? [];
  if (operator === undefined || value === undefined) {
    throw new Error(`“${text}” is no condition; write one like  total > 20  or  items[0].name = tea`);
  }
  return { steps, operator, value: literal(value.trim()) };
}

/** @param {string} text */
function literal(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * Values at a place; `*` stands for every item of an array or object.
 * @param {unknown} root
 * @param {(string | number)[]} steps
 * @returns {unknown[]}
 */
export function valuesAt(root, steps) {
  /** @type {unknown[]} */
  let found = [root];
  for (const step of steps) {
    found = found.flatMap((value) => {
      if (value === null || typeof value !== "object") return [];
      if (step === "*") return Object.values(value);
      return Object.hasOwn(value, step) ? [/** @type {any} */ (value)[step]] : [];
    });
  }
  return found;
}

/** @type {Record<string, (found: any, wanted: any) => boolean>} */
const OPERATORS = {
  "is there": (found) => found !== null,
  "=": (found, wanted) => same(found, wanted),
  "!=": (found, wanted) => !same(found, wanted),
  "<": (found, wanted) => typeof found === typeof wanted && found < wanted,
  ">": (found, wanted) => typeof found === typeof wanted && found > wanted,
  "<=": (found, wanted) => typeof found === typeof wanted && found <= wanted,
  ">=": (found, wanted) => typeof found === typeof wanted && found >= wanted,
  "~": (found, wanted) => (typeof found === "string" ? found : JSON.stringify(found)).toLowerCase().includes(String(wanted).toLowerCase()),
};

/** @param {unknown} found @param {unknown} wanted */
const same = (found, wanted) => found === wanted || String(found) === String(wanted) || JSON.stringify(found) === JSON.stringify(wanted);

/**
 * A test for messages, from what stands in the two fields.
 * @param {string} text to be contained, regardless of case
 * @param {string} condition
 * @returns {(content: string) => boolean}
 */
export function matcher(text, condition) {
  const wanted = text.toLowerCase();
  const parsed = parseCondition(condition);
  return (content) => {
    if (wanted && !content.toLowerCase().includes(wanted)) return false;
    if (!parsed) return true;
    try {
      const compare = OPERATORS[parsed.operator];
      return valuesAt(JSON.parse(content), parsed.steps).some((value) => compare?.(value, parsed.value));
    } catch {
      return false;
    }
  };
}
