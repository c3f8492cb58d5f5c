/**
 * Pictures to save: maps as SVG, and SVG as PNG. Each picture carries its colours, fonts and background in itself.
 *
 * @typedef {import("./look.js").WeightMap} WeightMap
 */
import { themeColour, weightScale } from "./colour.js";
import { element, shorten, svgElement } from "./dom.js";
import { weightImage } from "./heat_map.js";

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const CELL = 22;
const MOST_RECTANGLES = 40000;
const MOST_SIDE = 16000;
const MOST_PIXELS_OF_PNG = 5e7;

/**
 * Return a picture with a background in the theme's colour and the hatching of hidden cells as "url(#hatch)".
 *
 * @param {number} width
 * @param {number} height
 * @param {...Node} children
 * @returns {SVGElement}
 */
export function picture(width, height, ...children) {
  const size = { width: Math.ceil(width), height: Math.ceil(height) };
  return svgElement(
    "svg",
    { ...size, viewBox: `0 0 ${size.width} ${size.height}`, "font-family": FONT, "font-size": 13 },
    svgElement("defs", {}, hatchPattern()),
    svgElement("rect", { ...size, fill: themeColour("surface") }),
    ...children,
  );
}

/**
 * Return a line of text of a picture.
 *
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {Object<string, any>} [attributes]
 * @returns {SVGElement}
 */
export function pictureText(text, x, y, attributes = {}) {
  return svgElement("text", { x, y, fill: themeColour("ink"), "dominant-baseline": "central", text, ...attributes });
}

/**
 * Return a guess of the width of a text of 13 pixels.
 *
 * @param {string} text
 * @returns {number}
 */
export function textWidth(text) {
  textWidth.context ??= element("canvas").getContext("2d");
  textWidth.context.font = `13px ${FONT}`;
  return textWidth.context.measureText(text).width;
}

/**
 * Return the hatching of hidden cells as a pattern of SVG.
 *
 * @returns {SVGElement}
 */
function hatchPattern() {
  const line = svgElement("path", { d: "M-1 7 L7 -1 M-1 1 L1 -1 M5 7 L7 5", stroke: themeColour("hatch") });
  return svgElement("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, line);
}

/**
 * Return a map as a group of SVG, with its labels, title and size: a rectangle per cell, or one image if there are too
 * many cells.
 *
 * @param {WeightMap} map
 * @param {string} title
 * @param {import("./colour.js").Scale} [scale]
 * @param {import("./links.js").Block[]} [blocks]  cells that are outlined, as links
 * @returns {{group: SVGElement, width: number, height: number}}
 */
export function mapPicture(map, title, scale = weightScale(map.minimum, map.maximum), blocks = []) {
  const { rows, columns, values, hidden } = map;
  const many = values.length > MOST_RECTANGLES;
  const cell = many ? 12 : CELL;
  const left = Math.max(...rows.map((item) => textWidth(shorten(item.label)))) + 24;
  const longest = Math.max(...columns.map((item) => textWidth(shorten(item.label))));
  const top = longest * Math.SQRT1_2 + 52;
  const group = svgElement("g", {});
  group.append(pictureText(title, 12, 18, { "font-weight": 600 }));
  if (many) {
    const href = weightImage(map, scale).toDataURL();
    const size = { width: columns.length * cell, height: rows.length * cell };
    const attributes = { x: left, y: top, ...size, href, preserveAspectRatio: "none" };
    if (hidden) group.append(svgElement("rect", { x: left, y: top, ...size, fill: "url(#hatch)" }));
    group.append(svgElement("image", { ...attributes, "image-rendering": "pixelated" }));
  }
  rows.forEach((row, rowIndex) => {
    const y = top + rowIndex * cell;
    group.append(pictureText(shorten(row.label), left - 8, y + cell / 2, { "text-anchor": "end" }));
    if (many) return;
    columns.forEach((_, column) => {
      const index = rowIndex * columns.length + column;
      const fill = hidden?.[index] ? "url(#hatch)" : scale.css(values[index]);
      group.append(svgElement("rect", { x: left + column * cell, y, width: cell - 1, height: cell - 1, fill }));
    });
  });
  for (const { row, column, ...size } of blocks) {
    const place = { x: left + column * cell + 1, y: top + row * cell + 1 };
    const extent = { width: size.columns * cell - 3, height: size.rows * cell - 3 };
    group.append(
      svgElement("rect", { ...place, ...extent, fill: "none", stroke: themeColour("link"), "stroke-width": 2 }),
    );
  }
  columns.forEach((column, index) => {
    const [x, y] = [left + (index + 0.5) * cell, top - 8];
    group.append(pictureText(shorten(column.label), x, y, { transform: `rotate(-45 ${x} ${y})` }));
  });
  const width = Math.max(left + columns.length * cell + longest * Math.SQRT1_2 + 12, textWidth(title) + 40);
  return { group, width, height: top + rows.length * cell + 16 };
}

/**
 * Return maps beside each other as one picture.
 *
 * @param {{group: SVGElement, width: number, height: number}[]} maps
 * @returns {SVGElement}
 */
export function besideEachOther(maps) {
  let x = 0;
  for (const map of maps) {
    map.group.setAttribute("transform", `translate(${x} 0)`);
    x += map.width;
  }
  return picture(x, Math.max(...maps.map((map) => map.height)), ...maps.map((map) => map.group));
}

/**
 * Return a picture as a file of SVG.
 *
 * @param {SVGElement} svg
 * @returns {Blob}
 */
export function svgFile(svg) {
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

/**
 * Return a picture as a file of PNG, with two pixels per unit where the browser's canvas has room for them.
 *
 * @param {SVGElement} svg
 * @returns {Promise<Blob>}
 */
export async function pngFile(svg) {
  const address = URL.createObjectURL(svgFile(svg));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const [width, height] = [Number(svg.getAttribute("width")), Number(svg.getAttribute("height"))];
    const ratio = Math.min(2, MOST_SIDE / width, MOST_SIDE / height, Math.sqrt(MOST_PIXELS_OF_PNG / (width * height)));
    const canvas = element("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
