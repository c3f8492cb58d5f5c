/**
 * The source and the translation as words or tokens. The pointer or the focus on one shows its weights on the others; a
 * slider over decoding steps keeps those of one step. Lines join linked words.
 */
import { weightScale } from "./colour.js";
import { announce, element, isolated, moveByArrows, number, visible } from "./dom.js";
import { drawLinkLines, linkSwitch, linksOf } from "./links.js";
import { axisItems, heaviest, rowOfStep, weightMap } from "./look.js";

/**
 * Draw the section.
 *
 * @param {HTMLElement} container
 * @param {import("./main.js").Scene} scene
 * @returns {{showStep: (step: number|null) => void}}
 */
export function drawSentences(container, scene) {
  const { look, slot, level } = scene;
  const map = weightMap(look, slot, scene.heads, level);
  const scale = weightScale(map.minimum, map.maximum);
  const chip = (item, side) =>
    element("button", { type: "button", class: "chip", text: item.label, "data-testid": `${side}-chip` });
  const sourceItems = axisItems(look, "source", level);
  const source = sourceItems.map((item) => chip(item, "source"));
  const target = axisItems(look, "target", level).map((item) => chip(item, "target"));
  const start = chip({ label: "<s>" }, "start");
  const axes = { source, target, target_read: [start, ...target.slice(0, -1)] };
  const [rowChips, columnChips] = [axes[slot.row_tokens], axes[slot.column_tokens]];
  const targetItems = axisItems(look, "target", level);
  const readsStart = slot.row_tokens === "target_read" || slot.column_tokens === "target_read";
  const readout = element("p", { class: "readout muted", "data-testid": "readout" });
  let step = scene.step;
  let lines = null;

  const colour = (chips, values) =>
    chips.forEach((each, index) => {
      const value = values[index];
      each.style.backgroundColor = scale.css(value);
      each.style.color = scale.ink(value);
      each.dataset.weight = value.toFixed(4);
    });
  const clear = () => {
    for (const each of [...source, ...target, start]) {
      each.style.backgroundColor = each.style.color = "";
      each.classList.remove("chosen");
      delete each.dataset.weight;
    }
    readout.textContent = "";
    lines?.choose(null);
  };
  const show = (row, column, chosen) => {
    clear();
    chosen?.classList.add("chosen");
    lines?.choose(chosen);
    const width = map.columns.length;
    const [items, values, chips] =
      row >= 0
        ? [map.columns, map.values.subarray(row * width, (row + 1) * width), columnChips]
        : [map.rows, map.rows.map((_, index) => map.values[index * width + column]), rowChips];
    colour(chips, values);
    const label = (row >= 0 ? map.rows[row] : map.columns[column]).label;
    const parts = heaviest(items, values, 4).map((part) => `${isolated(part.label)} ${number(part.value, 2)}`);
    readout.textContent = `${isolated(label)} ${row >= 0 ? "\u2192" : "\u2190"} ${parts.join(", ")}`;
  };
  const focus = (each, event) => {
    const [row, column] = [rowChips.indexOf(each), columnChips.indexOf(each)];
    if (row < 0 && column < 0) return;
    show(row, column, each);
    if (event.type === "focus") announce(readout.textContent);
  };
  const rest = () => {
    clear();
    const row = rowOfStep(slot, map, step);
    target.forEach((each, index) => {
      const chosen = step !== null && targetItems[index].tokens.includes(step);
      each.classList.toggle("pinned", chosen);
      each.setAttribute("aria-pressed", String(chosen));
    });
    if (row >= 0) show(row, -1, rowChips[row]);
  };
  for (const each of [...source, ...target, start]) {
    each.addEventListener("pointerenter", (event) => focus(each, event));
    each.addEventListener("focus", (event) => focus(each, event));
    each.addEventListener("pointerleave", rest);
    each.addEventListener("blur", rest);
  }
  target.forEach((each, index) => {
    const { tokens } = targetItems[index];
    each.addEventListener("click", () => scene.setStep(tokens.includes(step) ? null : tokens[0]));
  });

  const line = (title, language, chips, testId) => {
    const list = element("div", {
      class: "chips",
      dir: "auto",
      role: "group",
      "aria-label": title,
      "data-testid": testId,
    });
    list.append(...chips);
    moveByArrows(list, ".chip");
    const name = element("h2", { text: title }, element("span", { class: "muted", text: ` ${language}` }));
    return element("div", { class: "sentence" }, name, list);
  };
  const { target: translation } = look;
  const scores = [];
  if (typeof translation.log_prob === "number") scores.push(`log-probability ${number(translation.log_prob)}`);
  if (typeof translation.score === "number") scores.push(`score ${number(translation.score)}`);
  if (translation.forced) scores.push(`${translation.forced} of ${translation.tokens.length} tokens forced`);
  const facts = element("p", { class: "muted small facts", "data-testid": "facts", text: scores.join(" · ") });
  const targetLine = line(
    "Translation",
    scene.model.target_language,
    readsStart ? [start, ...target] : target,
    "target-chips",
  );
  targetLine.append(facts);

  const slider = stepSlider(scene);
  const links = linksOf(scene);
  const sides = element(
    "div",
    { class: "linked-lines" },
    line("Source", scene.model.source_language, source, "source-chips"),
    targetLine,
  );
  container.replaceChildren(
    sides,
    readout,
    element("div", { class: "toolbar" }, levelSwitch(scene), slider.node, linkSwitch(scene, links)),
    ...look.notes.map((note) => element("p", { class: "muted small", "data-testid": "note", text: note })),
  );
  if (links)
    lines = drawLinkLines(sides, links.pairs, chipsOfWords(source, sourceItems), chipsOfWords(target, targetItems));
  rest();
  return {
    showStep(next) {
      step = next;
      slider.show(next);
      rest();
    },
  };
}

/**
 * Return the chips of each word: of one word there are several at the level of tokens.
 *
 * @param {HTMLElement[]} chips
 * @param {import("./look.js").Item[]} items
 * @returns {HTMLElement[][]}
 */
function chipsOfWords(chips, items) {
  const found = [];
  items.forEach(({ word }, index) => {
    if (word >= 0) found[word] = [...(found[word] ?? []), chips[index]];
  });
  return found;
}

/**
 * Return the switch between words and tokens.
 *
 * @param {import("./main.js").Scene} scene
 * @returns {HTMLElement}
 */
function levelSwitch(scene) {
  const option = (level, text) =>
    element("button", {
      type: "button",
      text,
      "aria-pressed": String(scene.level === level),
      "data-testid": `level-${level}`,
      click: () => scene.setLevel(level),
    });
  const buttons = [option("words", "Words"), option("tokens", "Tokens")];
  return element("div", { class: "switch", role: "group", "aria-label": "Level" }, ...buttons);
}

/**
 * Return the slider over decoding steps; its left end shows all steps.
 *
 * @param {import("./main.js").Scene} scene
 * @returns {{node: HTMLElement, show: (step: number|null) => void}}
 */
function stepSlider(scene) {
  const { tokens, token_log_probs: logProbs } = scene.look.target;
  const text = element("output", { for: "step", class: "muted", "data-testid": "step-text" });
  const input = element("input", {
    id: "step",
    type: "range",
    min: 0,
    max: tokens.length,
    "data-testid": "step",
    input: () => scene.setStep(Number(input.value) ? Number(input.value) - 1 : null),
  });
  const show = (step) => {
    input.value = step === null ? 0 : step + 1;
    const score = step !== null && step < logProbs.length ? ` (${number(logProbs[step], 2)})` : "";
    text.textContent =
      step === null ? "all steps" : `${step + 1} of ${tokens.length}: ${visible(tokens[step])}${score}`;
    input.setAttribute("aria-valuetext", text.textContent);
  };
  show(scene.step);
  const node = element(
    "div",
    { class: "field inline steps" },
    element("label", { for: "step", text: "Decoding step" }),
    input,
    text,
  );
  return { node, show };
}
