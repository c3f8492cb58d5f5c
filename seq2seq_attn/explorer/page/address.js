/**
 * The address of a view: the part after "#" holds the request and what is shown, as JSON. It never reaches a server.
 *
 * @typedef {Object} Address
 * @property {import("./api.js").LookRequest} request
 * @property {string} view
 * @property {string|null} slot
 * @property {number[]} heads
 * @property {"words"|"tokens"} level
 * @property {number|null} step
 * @property {"off"|"shown"|"default"} links  which links of words are drawn
 * @property {number|null} other
 * @property {import("./api.js").Intervention[]} interventions
 * @property {number[]} hide
 * @property {boolean} ran  whether the view shows the result of a further request
 * @property {number|null} sentence  of a self-contained page
 */

const PAUSE = 300; // milliseconds between two changes of the address: browsers refuse more than 200 in ten seconds
const LINKS = ["off", "shown", "default"];
const INTERVENTIONS = ["knock_out", "uniform"];

let waiting = null;
let timer = 0;
let written = -PAUSE;

/**
 * Write a view to the address, at once or after a pause: a slider changes the view many times a second.
 *
 * @param {Address} address
 * @param {boolean} push  whether the browser's Back key comes back to what was before
 */
export function writeAddress(address, push) {
  if (push) {
    flushAddress();
    write(address, true);
    return;
  }
  waiting = address;
  clearTimeout(timer);
  const pause = written + PAUSE - performance.now();
  if (pause > 0) timer = setTimeout(flushAddress, pause);
  else flushAddress();
}

/** Write the address that waits, if there is one. */
export function flushAddress() {
  if (waiting) write(waiting, false);
  forgetAddress();
}

/** Drop the address that waits: the browser shows another one. */
export function forgetAddress() {
  clearTimeout(timer);
  waiting = null;
}

/**
 * Write an address now.
 *
 * @param {Address} address
 * @param {boolean} push
 */
function write(address, push) {
  written = performance.now();
  const hash = `#${encodeURIComponent(JSON.stringify(address))}`;
  if (hash === location.hash) return;
  try {
    history[push ? "pushState" : "replaceState"](null, "", hash);
  } catch {
    // A frame without an address of its own (a notebook's) has no history to write.
  }
}

/**
 * Return the view of the address, or null if it names none.
 *
 * @returns {Address|null}
 */
export function readAddress() {
  if (location.hash.length < 2) return null;
  let address;
  try {
    address = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return null;
  }
  const numbers = (list) => (Array.isArray(list) ? list.filter(Number.isInteger) : []);
  const whole = (value) => (Number.isInteger(value) ? value : null);
  if (typeof address !== "object" || address === null) return null;
  const interventions = Array.isArray(address.interventions) ? address.interventions : [];
  const { request } = address;
  const hasRequest = typeof request === "object" && request !== null && typeof request.source === "string";
  if (!hasRequest && whole(address.sentence) === null) return null;
  return {
    request: hasRequest ? request : null,
    view: String(address.view),
    slot: typeof address.slot === "string" ? address.slot : null,
    heads: numbers(address.heads),
    level: address.level === "tokens" ? "tokens" : "words",
    step: whole(address.step),
    links: LINKS.includes(address.links) ? address.links : "off",
    other: whole(address.other),
    interventions: interventions.filter(isIntervention).map(({ do: doing, slot, head }) => ({ do: doing, slot, head })),
    hide: numbers(address.hide),
    ran: address.ran === true,
    sentence: whole(address.sentence),
  };
}

/**
 * Return whether a value is an intervention.
 *
 * @param {any} value
 * @returns {boolean}
 */
function isIntervention(value) {
  if (!INTERVENTIONS.includes(value?.do) || typeof value.slot !== "string") return false;
  return value.head === null || Number.isInteger(value.head);
}
