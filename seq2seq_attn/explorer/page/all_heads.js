/**
 * All layers and heads at a glance: a small map of each, by kind of attention. A click opens one.
 */
import { weightScale } from "./colour.js";
import { element, moveByArrows, svgElement } from "./dom.js";
import { weightImage } from "./heat_map.js";
import { weightMap } from "./look.js";
import { picture, pictureText } from "./picture.js";

const KINDS = { cross: "Cross-attention", encoder: "Encoder self-attention", self: "Decoder self-attention" };
const MOST_PIXELS = 128;
const SIZE = 84;

/**
 * Return the name of a kind of attention.
 *
 * @param {"cross"|"encoder"|"self"} kind
 * @returns {string}
 */
export function kindName(kind) {
  return KINDS[kind] ?? kind;
}

/**
 * Return a map of fewer cells: each is the greatest of the cells it joins, and hidden if all are.
 *
 * @param {import("./look.js").WeightMap} map
 * @returns {import("./look.js").WeightMap}
 */
function coarse(map) {
  const join = Math.ceil(Math.max(map.rows.length, map.columns.length) / MOST_PIXELS);
  if (join === 1) return map;
  const rows = map.rows.filter((_, index) => index % join === 0);
  const columns = map.columns.filter((_, index) => index % join === 0);
  const values = new Float32Array(rows.length * columns.length);
  const hidden = map.hidden && new Uint8Array(values.length).fill(1);
  for (let cell = 0; cell < map.values.length; cell++) {
    const row = Math.floor(Math.floor(cell / map.columns.length) / join);
    const column = Math.floor((cell % map.columns.length) / join);
    const joined = row * columns.length + column;
    if (Math.abs(map.values[cell]) > Math.abs(values[joined])) values[joined] = map.values[cell];
    if (hidden) hidden[joined] &= map.hidden[cell];
  }
  return { ...map, rows, columns, values, hidden };
}

/**
 * Draw the view.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @returns {import("./main.js").View}
 */
export function drawAllHeads(panel, scene) {
  const { look, level } = scene;
  const pictures = [];
  for (const kind of Object.keys(KINDS)) {
    const slots = look.slots.filter((slot) => slot.kind === kind);
    if (!slots.length) continue;
    const rows = slots.map((slot) => {
      const thumbnails = Array.from({ length: slot.heads }, (_, head) => {
        const map = coarse(weightMap(look, slot, [head], level));
        const canvas = weightImage(map, weightScale(map.minimum, map.maximum));
        canvas.setAttribute("class", "thumbnail");
        canvas.setAttribute("aria-hidden", "true");
        pictures.push({ slot, head, canvas });
        const open = slot.name === scene.slot.name && scene.heads.includes(head);
        const attributes = { class: "thumbnail-button", type: "button", "data-testid": "thumbnail" };
        return element(
          "button",
          {
            ...attributes,
            "aria-label": `${slot.name}, head ${head}${open ? ", shown" : ""}`,
            "aria-current": open ? "true" : null,
            "data-slot": slot.name,
            "data-head": head,
            click: () => scene.open(slot.name, [head]),
          },
          canvas,
          element("span", { text: `head ${head}` }),
        );
      });
      const row = element("div", { class: "thumbnails" }, ...thumbnails);
      return element("div", { class: "layer" }, element("h4", { text: `layer ${slot.layer}` }), row);
    });
    const group = element("section", { class: "kind" }, element("h3", { text: KINDS[kind] }), ...rows);
    const perRow = () => group.querySelectorAll(".thumbnails")[0].querySelectorAll("button").length;
    moveByArrows(group, "button", perRow);
    panel.append(group);
  }
  panel.append(element("p", { class: "muted small", text: "Each map has a scale of its own; click one to open it." }));
  return { svg: () => gridPicture(look, pictures) };
}

/**
 * Return the grid as a picture.
 *
 * @param {Object} look
 * @param {{slot: import("./look.js").Slot, head: number, canvas: HTMLCanvasElement}[]} pictures
 * @returns {SVGElement}
 */
function gridPicture(look, pictures) {
  const parts = [];
  let y = 0;
  const kinds = Object.keys(KINDS);
  const slots = look.slots.toSorted((first, second) => kinds.indexOf(first.kind) - kinds.indexOf(second.kind));
  for (const slot of slots) {
    parts.push(pictureText(slot.name, 12, y + SIZE / 2 + 18));
    for (const { head, canvas } of pictures.filter((each) => each.slot === slot)) {
      const place = { x: 90 + head * (SIZE + 10), y: y + 20, width: SIZE, height: SIZE };
      const attributes = { href: canvas.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" };
      if (slot.hidden) parts.push(svgElement("rect", { ...place, fill: "url(#hatch)" }));
      parts.push(svgElement("image", { ...place, ...attributes }));
      parts.push(pictureText(`head ${head}`, place.x, y + 10, { "font-size": 11 }));
    }
    y += SIZE + 30;
  }
  const most = Math.max(...look.slots.map((slot) => slot.heads));
  return picture(100 + most * (SIZE + 10), y + 8, ...parts);
}
