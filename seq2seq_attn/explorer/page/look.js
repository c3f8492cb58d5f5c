/**
 * A look at a translation: the server's answer decoded, its tokens joined to words, and maps of its weights.
 *
 * A weight map is what every view draws. On words, the weights of a key word are the sum over its tokens and those of a
 * query word the mean over its tokens; a cell is hidden if all its cells are.
 *
 * @typedef {Object} Item  A word or a token on an axis of a map.
 * @property {string} label
 * @property {number[]} tokens  Positions of its tokens.
 * @property {number} word  The word that it is or belongs to, from 0; -1: none, as of the end token.
 *
 * @typedef {Object} Slot  The weights of one attention.
 * @property {string} name
 * @property {"cross"|"encoder"|"self"} kind
 * @property {number} layer
 * @property {number} heads
 * @property {number} rows
 * @property {number} columns
 * @property {"source"|"target"|"target_read"} row_tokens
 * @property {"source"|"target_read"} column_tokens
 * @property {Float32Array} weights  heads × rows × columns
 * @property {Uint8Array|null} hidden  hidden_heads × rows × columns; 1: a pattern, a mask or causality forbids it
 * @property {number} hidden_heads  1 or heads
 * @property {{entropy: number, diagonal: number, sink: number, previous: number,
 *             mostly: {word: string, share: number}[]}[]} heads_summary
 *
 * @typedef {Object} WeightMap
 * @property {Item[]} rows
 * @property {Item[]} columns
 * @property {Float32Array} values  rows × columns
 * @property {Uint8Array|null} hidden
 * @property {number} minimum
 * @property {number} maximum
 */
import { visible } from "./dom.js";

/**
 * Return the bytes of a base64 string.
 *
 * @param {string} text
 * @returns {Uint8Array}
 */
function bytesOfBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

/**
 * Return the number whose IEEE 754 half-precision bits are given.
 *
 * @param {number} bits
 * @returns {number}
 */
function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
}

/**
 * Return a slot with its weights and its hidden cells as arrays.
 *
 * @param {Object} slot  as the server sends it
 * @returns {Slot}
 */
function decodeSlot(slot) {
  const view = new DataView(bytesOfBase64(slot.weights).buffer);
  const size = slot.heads * slot.rows * slot.columns;
  const weights = new Float32Array(size);
  const half = slot.dtype === "float16";
  for (let index = 0; index < size; index++) {
    weights[index] = half ? halfToNumber(view.getUint16(2 * index, true)) : view.getFloat32(4 * index, true);
  }
  let hidden = null;
  if (slot.hidden) {
    const bits = bytesOfBase64(slot.hidden);
    hidden = new Uint8Array(slot.hidden_heads * slot.rows * slot.columns);
    for (let index = 0; index < hidden.length; index++) hidden[index] = (bits[index >> 3] >> (7 - (index & 7))) & 1;
  }
  return { ...slot, weights, hidden };
}

/**
 * Return a look with the weights of its slots as arrays, and the steps of its search tree as lists of nodes.
 *
 * @param {Object} look  as the server sends it
 * @returns {Object}
 */
export function decodeLook(look) {
  const tree = look.tree && { ...look.tree, steps: look.tree.steps.map((step) => step.nodes ?? step) };
  return { ...look, tree, slots: look.slots.map(decodeSlot) };
}

/**
 * Return the words or tokens of an axis. What self-attention reads is the start symbol and all but the last token.
 *
 * @param {Object} look
 * @param {"source"|"target"|"target_read"} axis
 * @param {"words"|"tokens"} level
 * @returns {Item[]}
 */
export function axisItems(look, axis, level) {
  const side = axis === "source" ? look.source : look.target;
  const read = axis === "target_read";
  const tokens = read ? ["<s>", ...side.tokens.slice(0, -1)] : side.tokens;
  const words = read ? [-1, ...side.words.slice(0, -1)] : side.words;
  const items = [];
  tokens.forEach((token, position) => {
    const word = words[position];
    const joined = level === "words" && word >= 0;
    if (joined && position && words[position - 1] === word) items.at(-1).tokens.push(position);
    else items.push({ label: visible(joined ? side.word_texts[word] : token), tokens: [position], word });
  });
  return items;
}

/**
 * Return the least and the greatest value, 0 included.
 *
 * @param {Float32Array} values
 * @returns {{minimum: number, maximum: number}}
 */
function rangeOf(values) {
  let minimum = 0;
  let maximum = 0;
  for (const value of values) {
    if (value < minimum) minimum = value;
    else if (value > maximum) maximum = value;
  }
  return { minimum, maximum };
}

/**
 * Return the map of a slot: the mean over some of its heads, on words or tokens.
 *
 * @param {Object} look
 * @param {Slot} slot
 * @param {number[]} heads
 * @param {"words"|"tokens"} level
 * @returns {WeightMap}
 */
export function weightMap(look, slot, heads, level) {
  const size = slot.rows * slot.columns;
  const values = new Float32Array(size);
  const hidden = slot.hidden ? new Uint8Array(size).fill(1) : null;
  for (const head of heads) {
    const offset = head * size;
    for (let cell = 0; cell < size; cell++) values[cell] += slot.weights[offset + cell] / heads.length;
    if (!hidden) continue;
    const hiddenOffset = slot.hidden_heads > 1 ? offset : 0;
    for (let cell = 0; cell < size; cell++) hidden[cell] &= slot.hidden[hiddenOffset + cell];
  }
  const rows = axisItems(look, slot.row_tokens, level);
  const columns = axisItems(look, slot.column_tokens, level);
  if (level === "tokens") return { rows, columns, values, hidden, ...rangeOf(values) };
  return joinToWords(rows, columns, values, hidden, slot.columns);
}

/**
 * Return the item of each token of an axis.
 *
 * @param {Item[]} items
 * @returns {number[]}
 */
function itemOfToken(items) {
  return items.flatMap((item, index) => item.tokens.map(() => index));
}

/**
 * Return the map of words of the weights of tokens: the sum over key tokens, the mean over query tokens.
 *
 * @param {Item[]} rows
 * @param {Item[]} columns
 * @param {Float32Array} weights
 * @param {Uint8Array|null} hiddenTokens
 * @param {number} width  number of key tokens
 * @returns {WeightMap}
 */
function joinToWords(rows, columns, weights, hiddenTokens, width) {
  const values = new Float32Array(rows.length * columns.length);
  const hidden = hiddenTokens && new Uint8Array(values.length).fill(1);
  const [rowOf, columnOf] = [itemOfToken(rows), itemOfToken(columns)];
  for (let query = 0; query < rowOf.length; query++) {
    const share = 1 / rows[rowOf[query]].tokens.length;
    for (let key = 0; key < columnOf.length; key++) {
      const cell = rowOf[query] * columns.length + columnOf[key];
      values[cell] += weights[query * width + key] * share;
      if (hidden) hidden[cell] &= hiddenTokens[query * width + key];
    }
  }
  return { rows, columns, values, hidden, ...rangeOf(values) };
}

/**
 * Return the first map less the second, or null if their words differ.
 *
 * @param {WeightMap} first
 * @param {WeightMap} second
 * @returns {WeightMap|null}
 */
export function differenceOfMaps(first, second) {
  const labels = (items) => items.map((item) => item.label).join("\n");
  if (labels(first.rows) !== labels(second.rows) || labels(first.columns) !== labels(second.columns)) return null;
  const values = first.values.map((value, cell) => value - second.values[cell]);
  const hidden = first.hidden && second.hidden ? first.hidden.map((bit, cell) => bit & second.hidden[cell]) : null;
  const { minimum, maximum } = rangeOf(values);
  const largest = Math.max(-minimum, maximum);
  return { rows: first.rows, columns: first.columns, values, hidden, minimum: -largest, maximum: largest };
}

/**
 * Return the row that a decoding step reads, or -1: an encoder has no decoding steps.
 *
 * @param {Slot} slot
 * @param {WeightMap} map
 * @param {number|null} step
 * @returns {number}
 */
export function rowOfStep(slot, map, step) {
  if (step === null || slot.kind === "encoder") return -1;
  return map.rows.findIndex((row) => row.tokens.includes(step));
}

/**
 * Return the items of greatest weight, largest first.
 *
 * @param {Item[]} items
 * @param {ArrayLike<number>} values
 * @param {number} count
 * @returns {{label: string, value: number}[]}
 */
export function heaviest(items, values, count) {
  const all = items.map((item, index) => ({ label: item.label, value: values[index] }));
  return all.sort((first, second) => Math.abs(second.value) - Math.abs(first.value)).slice(0, count);
}
