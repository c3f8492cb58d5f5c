/**
 * The translation scored token by token, and the ten best next tokens of a step: a click on one forces it, and the
 * search goes on after it.
 */
import { themeColour } from "./colour.js";
import { announce, element, moveByArrows, number, shorten, svgElement, visible } from "./dom.js";
import { picture, pictureText, textWidth } from "./picture.js";

const END = "</s>";

/**
 * Return a bar whose length is a probability.
 *
 * @param {number} logProb
 * @returns {HTMLElement}
 */
function probabilityBar(logProb) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${100 * Math.exp(logProb)}%`;
  return element("span", { class: "bar-track" }, bar);
}

/**
 * Return a probability as text.
 *
 * @param {number} logProb
 * @returns {string}
 */
function percent(logProb) {
  const share = 100 * Math.exp(logProb);
  return share >= 0.1 ? `${share.toFixed(1)} %` : "< 0.1 %";
}

/**
 * Draw the view.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @returns {import("./main.js").View}
 */
export function drawTokenScores(panel, scene) {
  const { target, top } = scene.look;
  if (!target.token_log_probs.length) {
    const text = "The page holds no scores of this translation's tokens.";
    panel.append(element("p", { class: "muted", text }));
    return { svg: () => picture(600, 40, pictureText(text, 12, 20)) };
  }
  const rows = target.tokens.map((token, step) => {
    const rank = (top[step] ?? []).findIndex((each) => isChosen(each, target, step));
    const choose = element("button", {
      type: "button",
      class: "link",
      dir: "auto",
      text: visible(token),
      "data-testid": "scored-token",
      click: () => scene.setStep(step),
    });
    return element(
      "tr",
      { "data-testid": "scored-row" },
      element("td", { class: "figure muted", text: step + 1 }),
      element(
        "td",
        {},
        choose,
        step < target.forced && target.forced < target.tokens.length
          ? element("span", { class: "tag", text: "forced" })
          : "",
      ),
      element("td", { class: "figure", text: number(target.token_log_probs[step]) }),
      element("td", { class: "wide" }, probabilityBar(target.token_log_probs[step])),
      element("td", { class: "figure", text: percent(target.token_log_probs[step]) }),
      element("td", { class: "figure", text: rank < 0 ? "> 10" : rank + 1 }),
    );
  });
  const heads = ["step", "token", "log-prob", "", "probability", "rank"];
  const head = element(
    "tr",
    {},
    ...heads.map((text) => (text ? element("th", { scope: "col", text }) : element("td"))),
  );
  const body = element("tbody", {}, ...rows);
  moveByArrows(body, "button");
  const foot = element(
    "tr",
    {},
    element("td"),
    element("th", { scope: "row", text: "all" }),
    element("td", { class: "figure", text: number(target.log_prob) }),
    element("td", { colspan: 3 }),
  );
  const table = element(
    "table",
    { class: "scores", "data-testid": "token-table" },
    element("thead", {}, head),
    body,
    element("tfoot", {}, foot),
  );
  const next = element("div", { class: "next", "data-testid": "next-tokens" });
  panel.append(element("div", { class: "columns" }, element("div", { class: "scroll" }, table), next));

  const showStep = (step) => {
    const shown = step ?? 0;
    for (const [index, row] of rows.entries()) row.classList.toggle("shown", index === shown);
    drawNextTokens(next, scene, shown);
  };
  showStep(scene.step);
  return { svg: () => scoresPicture(target), showStep };
}

/**
 * Return whether a next token is the one of the translation.
 *
 * @param {{id: number, token: string}} next
 * @param {Object} target
 * @param {number} step
 * @returns {boolean}
 */
function isChosen(next, target, step) {
  return step < target.token_ids.length ? next.id === target.token_ids[step] : next.token === target.tokens[step];
}

/**
 * Draw the ten best next tokens of a step.
 *
 * @param {HTMLElement} container
 * @param {import("./main.js").Scene} scene
 * @param {number} step
 */
function drawNextTokens(container, scene, step) {
  const { target, top } = scene.look;
  const prefix = target.token_ids.slice(0, step);
  const rows = (top[step] ?? []).map((next) => {
    const chosen = isChosen(next, target, step);
    const force = () => {
      announce(`Translating with ${next.token} at step ${step + 1}`);
      if (next.token === END) scene.forceAll(prefix);
      else scene.force([...prefix, next.id]);
    };
    const label = element("span", { class: "next-token", dir: "auto", text: visible(next.token) });
    const figures = [probabilityBar(next.log_prob), element("span", { class: "figure", text: number(next.log_prob) })];
    const attributes = { class: "next-row", "data-testid": "next-token", "data-id": next.id };
    if (!scene.canAsk) return element("div", attributes, label, ...figures);
    return element(
      "button",
      {
        ...attributes,
        type: "button",
        "aria-label": `${visible(next.token)} ${number(next.log_prob)}${chosen ? ", chosen" : ""}`,
        "aria-current": chosen ? "true" : null,
        click: force,
      },
      label,
      ...figures,
    );
  });
  const before = prefix.length ? target.tokens.slice(0, step).map(visible).join(" ") : "the start";
  container.replaceChildren(
    element("h3", { text: `Ten best tokens of step ${step + 1}` }),
    element("p", { class: "muted small", dir: "auto", text: `After ${before}` }),
    element("div", { class: "next-list" }, ...rows),
  );
  if (scene.canAsk) {
    const text = "A click forces the token; the search goes on after it.";
    container.append(element("p", { class: "muted small", text }));
  }
  moveByArrows(container, "button");
}

/**
 * Return the scores as a picture.
 *
 * @param {Object} target
 * @returns {SVGElement}
 */
function scoresPicture(target) {
  const left = Math.max(...target.tokens.map((token) => textWidth(shorten(visible(token))))) + 24;
  const parts = target.tokens.flatMap((token, step) => {
    const y = 20 + step * 24;
    const width = 240 * Math.exp(target.token_log_probs[step]);
    return [
      pictureText(shorten(visible(token)), left - 8, y, { "text-anchor": "end" }),
      svgElement("rect", { x: left, y: y - 7, width, height: 14, rx: 2, fill: themeColour("accent") }),
      pictureText(number(target.token_log_probs[step]), left + width + 8, y, { fill: themeColour("muted") }),
    ];
  });
  return picture(left + 320, 24 * target.tokens.length + 16, ...parts);
}
