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
 * @property {number|null} other
 * @property {import("./api.js").Intervention[]} interventions
 * @property {number[]} hide
 * @property {number|null} sentence  of a self-contained page
 */

/**
 * Write a view to the address.
 *
 * @param {Address} address
 * @param {boolean} push  whether the browser's Back key comes back to what was before
 */
export function writeAddress(address, push) {
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
    other: whole(address.other),
    interventions: Array.isArray(address.interventions) ? address.interventions : [],
    hide: numbers(address.hide),
    sentence: whole(address.sentence),
  };
}
