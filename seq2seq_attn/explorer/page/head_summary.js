/**
 * What each head of an attention looks at, in numbers and words, and the formula and the parts of the attention.
 */
import { kindName } from "./all_heads.js";
import { element, isolated, number, shorten, visible } from "./dom.js";

const SHOWN_WEIGHTS =
  "Shown is the positive part of each row, divided by its sum: the weights themselves need not sum to one.";

const MEASURES = {
  diagonal: ["diagonal", "share of the weight within one token of the diagonal"],
  sink: ["sink", "share of the weight on the end token"],
  previous: ["previous", "share of the weight on the token before"],
};

/**
 * Draw the table of heads: a row selects its head.
 *
 * @param {HTMLElement} container
 * @param {import("./main.js").Scene} scene
 */
export function drawSummary(container, scene) {
  const { slot } = scene;
  const largest = Math.log(Math.max(2, slot.columns));
  const measures = Object.keys(MEASURES).filter((name) => name !== "previous" || slot.kind !== "cross");
  const meaning = (name) =>
    name === "sink" && slot.kind === "self" ? "share of the weight on the begin token" : MEASURES[name][1];
  const rows = slot.heads_summary.flatMap((head, index) => {
    const shown = scene.heads.includes(index);
    const mostly = (head.mostly ?? [])
      .map((part) => `${isolated(shorten(visible(part.word)))} ${Math.round(100 * part.share)} %`)
      .join(", ");
    const choose = element("button", {
      type: "button",
      class: "link",
      text: `${index}`,
      "aria-label": `Show head ${index}`,
      "aria-current": shown ? "true" : null,
      "data-testid": "show-head",
      click: () => scene.setHeads([index]),
    });
    const cells = [
      element("td", {}, choose),
      measureCell(head.entropy, head.entropy / largest, 2),
      ...measures.map((name) => measureCell(head[name], head[name], 2)),
    ];
    const words = element("td", { colspan: cells.length - 1, class: "mostly", text: mostly });
    return [
      element("tr", { class: shown ? "shown" : null, "data-testid": "head-row" }, ...cells),
      element("tr", { class: shown ? "shown words" : "words" }, element("td"), words),
    ];
  });
  const head = element(
    "tr",
    {},
    element("th", { scope: "col", text: "head" }),
    element("th", { scope: "col", text: "entropy", title: "in nats, the mean over the rows" }),
    ...measures.map((name) => element("th", { scope: "col", text: MEASURES[name][0], title: meaning(name) })),
  );
  container.replaceChildren(
    element("h2", { text: `Heads of ${slot.name}` }),
    element(
      "div",
      { class: "scroll" },
      element("table", { class: "summary" }, element("thead", {}, head), element("tbody", {}, ...rows)),
    ),
    element("p", { class: "muted small", text: "Below each head: the words that get most of its weight." }),
  );
}

/**
 * Return a table cell with a number over a bar.
 *
 * @param {number|null} value
 * @param {number} share  length of the bar, from 0 to 1
 * @param {number} digits
 * @returns {HTMLElement}
 */
function measureCell(value, share, digits) {
  if (value === null || value === undefined) return element("td", { text: "\u2013", class: "muted" });
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return element("td", { class: "measure" }, number(value, digits), bar);
}

/**
 * Draw the formula and the parts of the attention.
 *
 * @param {HTMLElement} container
 * @param {import("./main.js").Scene} scene
 */
export function drawFormula(container, scene) {
  const description = scene.model.slots.find((slot) => slot.name === scene.slot.name);
  container.hidden = !description;
  if (!description) return;
  const parts = Object.entries(description.parts ?? {}).filter(([, text]) => text);
  const told = (line) => parts.some(([, text]) => text.endsWith(line.slice(line.indexOf(": ") + 2)));
  const formula = description.formula.split("\n").filter((line) => line && !told(line));
  const kind = `${kindName(description.kind)}, layer ${description.layer}, ${description.heads} ${description.heads === 1 ? "head" : "heads"}`;
  const terms = parts.flatMap(([name, text]) => {
    const [option, sentence] = [text.split(": ", 1)[0], text.slice(text.indexOf(": ") + 2)];
    return [element("dt", { text: name }), element("dd", {}, element("b", { text: option }), ` ${sentence}`)];
  });
  const children = [
    element("h2", { text: description.title || description.name }),
    element("p", {
      class: "muted small",
      text: description.preset ? `attention=${description.preset}. ${kind}` : kind,
    }),
  ];
  if (formula.length) children.push(element("pre", { class: "formula", text: formula.join("\n"), tabindex: "0" }));
  if (terms.length) children.push(element("dl", {}, ...terms));
  if (!description.sums_to_one) {
    children.push(element("p", { class: "muted small", text: SHOWN_WEIGHTS }));
  }
  container.replaceChildren(...children);
}
