/**
 * Lines between queries and keys, as in the head view of BertViz (Vig 2019, arXiv:1906.05714): one line per weight,
 * whose opacity is the weight, in a colour per head.
 *
 * Lines of a head are joined to one path per level of opacity, so that many thousand of them stay fast.
 *
 * @typedef {import("./look.js").WeightMap} WeightMap
 */
import { headColour, themeColour } from "./colour.js";
import { announce, element, moveByArrows, number, shorten, svgElement } from "./dom.js";
import { heaviest, rowOfStep, weightMap } from "./look.js";
import { picture, pictureText, textWidth } from "./picture.js";

const LINE = 26;
const LEVELS = 20;
const WEAKEST = 0.02;

/**
 * Return the paths of one head's lines.
 *
 * @param {WeightMap} map
 * @param {string} colour
 * @param {number} strongest  the weight of an opaque line
 * @param {[number, number]} ends  x of the lines' ends
 * @param {(row: number, column: number) => boolean} chosen
 * @param {number} shift  down, so that the lines of several heads do not cover each other
 * @returns {SVGElement[]}
 */
function linesOf(map, colour, strongest, ends, chosen, shift) {
  const [left, right] = ends;
  const middle = (left + right) / 2;
  const parts = Array.from({ length: LEVELS + 1 }, () => []);
  for (let row = 0; row < map.rows.length; row++) {
    for (let column = 0; column < map.columns.length; column++) {
      const value = Math.abs(map.values[row * map.columns.length + column]) / strongest;
      if (!(value >= WEAKEST) || !chosen(row, column)) continue;
      const [from, to] = [(row + 0.5) * LINE + shift, (column + 0.5) * LINE + shift];
      parts[Math.ceil(value * LEVELS)].push(`M${left} ${from}C${middle} ${from} ${middle} ${to} ${right} ${to}`);
    }
  }
  return parts.flatMap((lines, level) => {
    const attributes = { d: lines.join(""), stroke: colour, fill: "none", "stroke-opacity": (level / LEVELS) ** 0.7 };
    return lines.length ? [svgElement("path", { ...attributes, "stroke-width": 1 + (2 * level) / LEVELS })] : [];
  });
}

/**
 * Draw the view.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @returns {import("./main.js").View}
 */
export function drawHeadLines(panel, scene) {
  const { look, slot, heads, level } = scene;
  const maps = heads.map((head) => weightMap(look, slot, [head], level));
  const mean = weightMap(look, slot, heads, level);
  const strongest = Math.max(...maps.map((map) => Math.max(map.maximum, -map.minimum))) || 1;
  const { rows, columns } = mean;
  const labelWidth = (items) => Math.max(40, ...items.map((item) => textWidth(shorten(item.label)))) + 20;
  const [leftWidth, rightWidth] = [labelWidth(rows), labelWidth(columns)];
  const gap = Math.max(90, Math.min(640, (panel.clientWidth || 700) - leftWidth - rightWidth - 8));
  const ends = [leftWidth, leftWidth + gap];
  const width = leftWidth + gap + rightWidth;
  const height = Math.max(rows.length, columns.length) * LINE + 8;
  let pinned = rowOfStep(slot, mean, scene.step);

  const spread = Math.min(3.5, 16 / heads.length);
  const lines = svgElement("g", {});
  const draw = (chosen) =>
    lines.replaceChildren(
      ...maps.flatMap((map, index) =>
        linesOf(map, headColour(heads[index]), strongest, ends, chosen, spread * (index - (heads.length - 1) / 2)),
      ),
    );
  const rest = () => {
    mark(null, -1);
    draw((row) => pinned < 0 || row === pinned);
  };

  const labels = { rows: [], columns: [] };
  const mark = (side, index) => {
    labels.rows.forEach((label, row) => {
      const weight = side === "columns" ? mean.values[row * columns.length + index] : null;
      paint(label, (side === "rows" && row === index) || (side === null && row === pinned), weight);
    });
    labels.columns.forEach((label, column) => {
      const row = side === "rows" ? index : side === null ? pinned : -1;
      const weight = row >= 0 ? mean.values[row * columns.length + column] : null;
      paint(label, side === "columns" && column === index, weight);
    });
  };
  const paint = (label, chosen, weight) => {
    const box = label.firstChild;
    box.setAttribute("fill", themeColour("accent"));
    box.setAttribute(
      "fill-opacity",
      chosen ? 0.3 : weight === null ? 0 : Math.min(1, Math.abs(weight) / strongest) * 0.5,
    );
    label.lastChild.setAttribute("font-weight", chosen ? 600 : 400);
  };
  const focus = (side, index, event) => {
    mark(side, index);
    draw((row, column) => (side === "rows" ? row : column) === index);
    const [others, values] =
      side === "rows"
        ? [columns, mean.values.subarray(index * columns.length, (index + 1) * columns.length)]
        : [rows, rows.map((_, row) => mean.values[row * columns.length + index])];
    const parts = heaviest(others, values, 3).map((part) => `${part.label} ${number(part.value)}`);
    if (event.type === "focus") announce(`${(side === "rows" ? rows : columns)[index].label}: ${parts.join(", ")}`);
  };
  let shownStep = scene.step;
  const label = (side, item, index) => {
    const left = side === "rows";
    const step = left && slot.kind !== "encoder" ? item.tokens[0] : null;
    const choose = () => scene.setStep(item.tokens.includes(shownStep) ? null : step);
    const chooseByKey = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    };
    const [x, y] = [left ? 0 : ends[1], index * LINE];
    const text = { "text-anchor": left ? "end" : "start" };
    return svgElement(
      "g",
      {
        class: "line-label",
        role: step === null ? "img" : "button",
        "aria-label": `${left ? "query" : "key"} ${item.label}`,
        "data-testid": left ? "line-row" : "line-column",
        pointerenter: (event) => focus(side, index, event),
        pointerleave: rest,
        focus: (event) => focus(side, index, event),
        blur: rest,
        click: step === null ? null : choose,
        keydown: step === null ? null : chooseByKey,
      },
      svgElement("rect", { x: x + 2, y: y + 1, width: (left ? leftWidth : rightWidth) - 4, height: LINE - 2, rx: 4 }),
      pictureText(shorten(item.label), left ? leftWidth - 10 : ends[1] + 10, y + LINE / 2, text),
    );
  };
  labels.rows = rows.map((item, index) => label("rows", item, index));
  labels.columns = columns.map((item, index) => label("columns", item, index));
  const groups = [svgElement("g", {}, ...labels.rows), svgElement("g", {}, ...labels.columns)];
  for (const group of groups) moveByArrows(group, ".line-label");
  const svg = picture(width, height, lines, ...groups);
  svg.setAttribute("class", "lines");
  svg.setAttribute("data-testid", "lines");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", `Lines of ${slot.name}, head ${heads.join(", ")}: queries left, keys right`);
  rest();
  panel.append(element("div", { class: "scroll" }, svg));
  return {
    svg: () => svg,
    showStep: (step) => {
      shownStep = step;
      pinned = rowOfStep(slot, mean, step);
      rest();
    },
  };
}
