/**
 * Files of a view: its picture as SVG or PNG, its weights as JSON or NPZ.
 */
import { element } from "./dom.js";
import { booleanArray, floatArray, npzFile, stringArray } from "./npz.js";

/**
 * Hand a file to the user.
 *
 * @param {string} name
 * @param {Blob} file
 */
export function saveFile(name, file) {
  const address = URL.createObjectURL(file);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/**
 * Return the weights of looks as JSON: per look its request and tokens, per slot nested lists of heads, rows and columns.
 *
 * @param {Object<string, Object>} looks  by name; "" is the one of the page
 * @returns {Blob}
 */
export function weightsJson(looks) {
  const nested = (values, [size, ...rest]) => {
    if (!rest.length) return Array.from(values);
    const step = values.length / size;
    return Array.from({ length: size }, (_, index) => nested(values.subarray(index * step, (index + 1) * step), rest));
  };
  const content = Object.entries(looks).map(([name, look]) => {
    const slots = look.slots.map((slot) => ({
      ...slot,
      dtype: "float32",
      weights: nested(slot.weights, [slot.heads, slot.rows, slot.columns]),
      hidden: slot.hidden && nested(slot.hidden, [slot.hidden_heads, slot.rows, slot.columns]),
    }));
    return [name || "look", { ...look, slots }];
  });
  return new Blob([JSON.stringify(Object.fromEntries(content))], { type: "application/json" });
}

/**
 * Return the weights of looks as NPZ: "cross/0" and "cross/0/hidden" per slot, the tokens, and the request as JSON.
 *
 * @param {Object<string, Object>} looks  by name; "" is the one of the page
 * @returns {Blob}
 */
export function weightsNpz(looks) {
  const arrays = {};
  for (const [name, look] of Object.entries(looks)) {
    const start = name && `${name}/`;
    if (look.request) arrays[`${start}request`] = stringArray([JSON.stringify(look.request)]);
    arrays[`${start}source_tokens`] = stringArray(look.source.tokens);
    arrays[`${start}target_tokens`] = stringArray(look.target.tokens);
    for (const slot of look.slots) {
      const size = [slot.rows, slot.columns];
      arrays[`${start}${slot.name}`] = floatArray(slot.weights, [slot.heads, ...size]);
      if (slot.hidden) arrays[`${start}${slot.name}/hidden`] = booleanArray(slot.hidden, [slot.hidden_heads, ...size]);
    }
  }
  return npzFile(arrays);
}
