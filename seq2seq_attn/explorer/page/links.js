/**
 * Links between the words of the source and of the translation, as `translate.py alignments=` writes them. The server
 * has computed them: by each head of cross-attention, by the mean of the heads of each layer, and by the run's default,
 * which is the head that guided alignment taught or else the mean of all heads.
 *
 * @typedef {Object} Block  The cells of a link on a map: more than one where words have several tokens.
 * @property {number} row
 * @property {number} column
 * @property {number} rows
 * @property {number} columns
 *
 * @typedef {Object} Links
 * @property {string} name  of the heads
 * @property {[number, number][]} pairs  source word and target word
 */
import { element, svgElement } from "./dom.js";

/**
 * Return the links that are to be shown, or null: they are off, or there are none for these heads.
 *
 * @param {import("./main.js").Scene} scene
 * @returns {Links|null}
 */
export function linksOf({ look, slot, heads, links }) {
  const layer = look.links?.slots[slot.name];
  if (!layer || links === "off") return null;
  if (links === "default" && look.links.default) return look.links.default;
  if (heads.length === 1) return { name: `${slot.name}, head ${heads[0]}`, pairs: layer.heads[heads[0]] };
  return heads.length === slot.heads ? { name: `${slot.name}, mean of all heads`, pairs: layer.mean } : null;
}

/**
 * Return the cells whose weights are those of links on a map of cross-attention.
 *
 * @param {import("./look.js").WeightMap} map
 * @param {[number, number][]} pairs
 * @param {boolean} shift  whether the weights of a target token are in the row of the step that reads it, the next one
 * @returns {Block[]}
 */
export function blocksOf(map, pairs, shift) {
  const span = (items, word, down) => {
    const tokens = items.filter((item) => item.word === word).flatMap((item) => item.tokens);
    const itemOf = (token) => items.findIndex((item) => item.tokens.includes(token + down));
    const first = itemOf(tokens[0]);
    return [first, itemOf(tokens.at(-1)) - first + 1];
  };
  return pairs.map(([source, target]) => {
    const [[row, rows], [column, columns]] = [span(map.rows, target, shift ? 1 : 0), span(map.columns, source, 0)];
    return { row, column, rows, columns };
  });
}

/**
 * Return whether a cell belongs to a block.
 *
 * @param {Block} block
 * @param {number} row
 * @param {number} column
 * @returns {boolean}
 */
export function isInside(block, row, column) {
  const down = row - block.row;
  const across = column - block.column;
  return down >= 0 && down < block.rows && across >= 0 && across < block.columns;
}

/**
 * Return the switch of links, with those that are shown as text; nothing where the shown attention has no links.
 *
 * @param {import("./main.js").Scene} scene
 * @param {Links|null} shown
 * @returns {HTMLElement|string}
 */
export function linkSwitch(scene, shown) {
  const { look, slot, heads } = scene;
  if (!look.links?.slots[slot.name]) return "";
  const byDefault = look.links.default;
  const links = scene.links === "default" && !byDefault ? "shown" : scene.links;
  const option = (value, text, title) =>
    element("button", {
      type: "button",
      text,
      title,
      "aria-pressed": String(links === value),
      "data-testid": `links-${value}`,
      click: () => scene.setLinks(value),
    });
  const buttons = [
    option("off", "Off", "No links"),
    option("shown", heads.length > 1 ? "These heads" : "This head", "Links by the heads that are shown"),
  ];
  if (byDefault) {
    const text = byDefault.guided ? "Guided head" : "All layers";
    buttons.push(option("default", text, `Links as translate.py writes them: ${byDefault.name}`));
  }
  const pairs = shown?.pairs.map((pair) => pair.join("-")).join(" ");
  let text = shown ? `${shown.name}: ${pairs || "no links"}` : "";
  if (!shown && links !== "off") text = "Links are of one head, or of all heads.";
  const note = shown && look.links.shift ? "On the map they are in the row after the word, where it is read." : "";
  return element(
    "div",
    { class: "links" },
    element("span", { class: "muted small", text: "Links" }),
    element("div", { class: "switch", role: "group", "aria-label": "Links of words" }, ...buttons),
    element("span", { class: "muted small", "data-testid": "links-text", text }),
    element("span", { class: "muted small", "data-testid": "links-note", text: note }),
  );
}

/**
 * Draw lines between the chips of linked words, now and whenever their places change.
 *
 * @param {HTMLElement} container  of both sentences, to whose corner lines are relative
 * @param {[number, number][]} pairs
 * @param {HTMLElement[][]} source  chips of each source word
 * @param {HTMLElement[][]} target  chips of each target word
 * @returns {{choose: (chip: HTMLElement|null) => void}} shows the lines of one chip, or of all
 */
export function drawLinkLines(container, pairs, source, target) {
  const paths = pairs.map(() => svgElement("path", { "data-testid": "link-line" }));
  const svg = svgElement("svg", { class: "link-lines", "aria-hidden": "true" }, ...paths);
  container.prepend(svg);
  const place = () => {
    const corner = svg.getBoundingClientRect();
    const endOf = (chips, edge) => {
      const boxes = chips.map((chip) => chip.getBoundingClientRect());
      const [first, last] = [boxes[0], boxes.findLast((box) => box.top === boxes[0].top)];
      const list = chips[0].parentElement.getBoundingClientRect();
      if (first.top < list.top - 1 || first.bottom > list.bottom + 1) return null; // scrolled out of its list
      return [(first.left + last.right) / 2 - corner.left, first[edge] - corner.top];
    };
    pairs.forEach(([from, to], index) => {
      const [begin, end] = [endOf(source[from], "bottom"), endOf(target[to], "top")];
      paths[index].setAttribute("d", begin && end ? curve(begin, end) : "");
    });
  };
  new ResizeObserver(place).observe(container);
  container.addEventListener("scroll", place, true);
  return {
    choose(chip) {
      const linked = pairs.map(([from, to]) => source[from].includes(chip) || target[to].includes(chip));
      paths.forEach((path, index) => {
        path.classList.toggle("other", linked.includes(true) && !linked[index]);
      });
    },
  };
}

/**
 * Return the path of a line that leaves and arrives upright.
 *
 * @param {[number, number]} begin
 * @param {[number, number]} end
 * @returns {string}
 */
function curve([x, y], [endX, endY]) {
  const bend = (y + endY) / 2;
  return `M${x} ${y}C${x} ${bend} ${endX} ${bend} ${endX} ${endY}`;
}
