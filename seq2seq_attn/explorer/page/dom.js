/**
 * Elements, movement by arrow keys, the tooltip and the read-out for screen readers.
 *
 * Text of users and models enters the page here, and only as text nodes and attributes: no module parses markup.
 */

/**
 * Set attributes and children of an element. A function is a listener of the event it is named after; `text` is the
 * text content; false, null and undefined leave an attribute out.
 *
 * @template {Element} T
 * @param {T} node
 * @param {Object<string, any>} attributes
 * @param {(Node|string)[]} children
 * @returns {T}
 */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
  return node;
}

/**
 * Return a new HTML element.
 *
 * @param {string} name
 * @param {Object<string, any>} [attributes]
 * @param {...(Node|string)} children
 * @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/**
 * Return a new SVG element.
 *
 * @param {string} name
 * @param {Object<string, any>} [attributes]
 * @param {...(Node|string)} children
 * @returns {SVGElement}
 */
export function svgElement(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

/**
 * Return the element of an id of index.html.
 *
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  return document.getElementById(id);
}

const moving = new WeakSet();

/**
 * Make a group of controls one stop of the Tab key, with arrow keys, Home and End moving inside it. Right and left
 * follow the reading direction. A group that has got new controls listens already.
 *
 * @param {Element} container
 * @param {string} selector of the controls
 * @param {() => number} [columns] how many controls a row has, if up and down move by rows
 */
export function moveByArrows(container, selector, columns = () => 1) {
  const items = () => [...container.querySelectorAll(selector)];
  const makeStop = (stop) => {
    for (const item of items()) item.setAttribute("tabindex", item === stop ? "0" : "-1");
  };
  makeStop(items().find((item) => item.getAttribute("tabindex") === "0") ?? items()[0]);
  if (moving.has(container)) return;
  moving.add(container);
  container.addEventListener("focusin", (event) => {
    const focused = event.target.closest(selector);
    if (focused) makeStop(focused);
  });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const index = all.indexOf(event.target.closest(selector));
    const forward = getComputedStyle(event.target).direction === "rtl" ? -1 : 1;
    const moves = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: columns(), ArrowUp: -columns() };
    let next = index + (moves[event.key] ?? 0);
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = all.length - 1;
    if (index < 0 || next === index || !all[next]) return;
    event.preventDefault();
    all[next].focus();
  });
}

/**
 * Read a line to screen readers.
 *
 * @param {string} text
 */
export function announce(text) {
  byId("live").textContent = text;
}

/**
 * Show the tooltip beside a point of the window, or hide it.
 *
 * @param {string[]|null} lines
 * @param {number} [x]
 * @param {number} [y]
 */
export function showTooltip(lines, x = 0, y = 0) {
  const tooltip = byId("tooltip");
  tooltip.hidden = !lines;
  if (!lines) return;
  tooltip.replaceChildren(...lines.map((line) => element("div", { text: line })));
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tooltip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

/**
 * Return a token or word as one visible line: control characters, nothing, and what has no ink get a sign.
 *
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  if (!text) return "\u2205";
  if (/^[\p{Cf}\p{Default_Ignorable_Code_Point}\p{Z}\u2800]+$/u.test(text)) return "\ufffd";
  return text.toWellFormed().replace(/[\p{Cc}\p{Bidi_Control}\ufffe\uffff]/gu, "\ufffd");
}

/**
 * Return a label isolated from the rest of its line: an arrow or a number between words that are written from right to
 * left would otherwise change sides.
 *
 * @param {string} label
 * @returns {string}
 */
export function isolated(label) {
  return `\u2068${label}\u2069`;
}

/**
 * Return a label cut with an ellipsis, for pictures whose width follows their labels.
 *
 * @param {string} text
 * @param {number} [length]
 * @returns {string}
 */
export function shorten(text, length = 28) {
  const characters = Array.from(text.slice(0, 4 * length));
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}\u2026` : text;
}

/**
 * Return a number with a fixed number of digits and a true minus sign.
 *
 * @param {number} value
 * @param {number} [digits]
 * @returns {string}
 */
export function number(value, digits = 3) {
  return value.toFixed(digits).replace("-", "\u2212");
}
