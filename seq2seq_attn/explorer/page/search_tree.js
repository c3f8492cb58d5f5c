/**
 * The search as a tree from left to right: a column per step, a node per candidate, by its state.
 *
 * A kept candidate is filled, a dropped one dashed, a finished one has a double frame; the path of the translation is
 * thick. A node shows its figures, and the search can go on from it.
 *
 * @typedef {Object} TreeNode
 * @property {number} id
 * @property {number|null} parent
 * @property {number} token_id
 * @property {string} token
 * @property {number} log_prob  of the token
 * @property {number} total  of the path
 * @property {"kept"|"dropped"|"finished"} state
 * @property {number|null} score
 * @property {number} rank
 */
import { themeColour } from "./colour.js";
import { announce, element, moveByArrows, number, shorten, svgElement, visible } from "./dom.js";
import { picture, pictureText, textWidth } from "./picture.js";

const PITCH = 30;
const STATES = ["kept", "finished", "dropped"];

/**
 * Return the nodes with their places: in each step by the order of their parents, then by rank.
 *
 * @param {{steps: TreeNode[][]}} tree
 * @param {boolean} dropped  whether dropped candidates are shown
 * @returns {{nodes: Map<number, TreeNode & {step: number, x: number, y: number, width: number}>, width: number,
 *            height: number}}
 */
function placeNodes(tree, dropped) {
  const nodes = new Map();
  let x = 16;
  let most = 0;
  tree.steps.forEach((step, index) => {
    const shown = step.filter((node) => dropped || node.state !== "dropped");
    const parentY = (node) => nodes.get(node.parent)?.y ?? 0;
    shown.sort((first, second) => parentY(first) - parentY(second) || first.rank - second.rank);
    const width = Math.max(36, ...shown.map((node) => 1.12 * textWidth(shorten(visible(node.token))) + 56));
    for (const [row, node] of shown.entries())
      nodes.set(node.id, { ...node, step: index, x, y: 44 + row * PITCH, width });
    x += width + 34;
    most = Math.max(most, shown.length);
  });
  return { nodes, width: x, height: 44 + most * PITCH + 8 };
}

/**
 * Return the nodes from the first step to a node.
 *
 * @param {Map<number, Object>} nodes
 * @param {number|null} id
 * @returns {Object[]}
 */
function pathTo(nodes, id) {
  const path = [];
  for (let node = nodes.get(id); node; node = nodes.get(node.parent)) path.unshift(node);
  return path;
}

/**
 * Draw the view.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @returns {import("./main.js").View}
 */
export function drawSearchTree(panel, scene) {
  const { tree, alternatives } = scene.look;
  if (!tree) {
    const text = "This translation has no search tree: its tokens are forced, or its search keeps no candidates.";
    panel.append(element("p", { class: "muted", "data-testid": "no-tree", text }));
    return { svg: () => picture(600, 40, pictureText(text, 12, 20)) };
  }
  const all = placeNodes(tree, true).nodes;
  const best = new Set(pathTo(all, tree.best).map((node) => node.id));
  const ended = new Set(
    tree.steps.flatMap((step) => step.filter((node) => node.state === "finished")).map((node) => node.id),
  );
  const facts = element("p", {
    class: "readout",
    "data-testid": "tree-facts",
    text: "Choose a candidate for its figures.",
  });
  const goOn = element("button", {
    type: "button",
    text: "Force this path and translate on",
    "data-testid": "force-path",
    hidden: true,
  });
  const holder = element("div", { class: "scroll tree", "data-testid": "tree" });
  let chosen = null;
  let svg = null;

  const choose = (node, group) => {
    chosen = node;
    const path = pathTo(all, node.id);
    const score = node.score === null ? "" : `, score ${number(node.score)}`;
    facts.textContent =
      `${path.map((each) => visible(each.token)).join(" ")}: log-probability ${number(node.log_prob)} of the token, ` +
      `${number(node.total)} of the path${score}; ${node.state} at step ${node.step + 1}, rank ${node.rank + 1}`;
    goOn.hidden = !scene.canAsk;
    announce(facts.textContent);
    svg.querySelector(".chosen")?.classList.remove("chosen");
    group.classList.add("chosen");
  };
  goOn.addEventListener("click", () => {
    const tokens = pathTo(all, chosen.id).map((node) => node.token_id);
    if (ended.has(chosen.id)) scene.forceAll(tokens.slice(0, -1));
    else scene.force(tokens);
  });

  const draw = (dropped) => {
    const { nodes, width, height } = placeNodes(tree, dropped);
    const edges = [];
    const boxes = [];
    for (const node of nodes.values()) {
      const parent = nodes.get(node.parent);
      const onBest = best.has(node.id);
      if (parent) {
        const [fromX, toX] = [parent.x + parent.width, node.x];
        const middle = (fromX + toX) / 2;
        const d = `M${fromX} ${parent.y}C${middle} ${parent.y} ${middle} ${node.y} ${toX} ${node.y}`;
        const attributes = { d, fill: "none", stroke: themeColour(onBest ? "accent" : "line-strong") };
        edges.push(svgElement("path", { ...attributes, "stroke-width": onBest ? 2.5 : 1 }));
      }
      boxes.push(nodeBox(node, onBest, choose));
    }
    const steps = tree.steps.map((_, index) => {
      const first = [...nodes.values()].find((node) => node.step === index);
      const colour = themeColour(index === scene.step ? "accent" : "muted");
      const attributes = { "font-size": 11, fill: colour, "font-weight": index === scene.step ? 700 : 400 };
      return first ? pictureText(`step ${index + 1}`, first.x + 4, 14, attributes) : svgElement("g");
    });
    svg = picture(width, height, ...edges, ...steps, ...boxes);
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "Search tree: candidates by step");
    moveByArrows(svg, ".tree-node");
    if (chosen) svg.querySelector(`[data-id="${chosen.id}"]`)?.classList.add("chosen");
    holder.replaceChildren(svg);
  };

  const box = element("input", { type: "checkbox", id: "show-dropped", "data-testid": "show-dropped" });
  box.checked = tree.steps.reduce((count, step) => count + step.length, 0) <= 400;
  box.addEventListener("change", () => draw(box.checked));
  const key = STATES.map((state) => element("span", { class: `key key-${state}`, text: state }));
  panel.append(
    element(
      "div",
      { class: "toolbar" },
      element(
        "span",
        { class: "field inline" },
        box,
        element("label", { for: "show-dropped", text: "Show dropped candidates" }),
      ),
      element("span", { class: "keys" }, ...key, element("span", { class: "key key-best", text: "translation" })),
    ),
    holder,
    element("div", { class: "toolbar tree-foot" }, facts, goOn),
    alternativesTable(alternatives ?? [], scene),
  );
  draw(box.checked);
  const showStep = (step) => {
    scene.step = step;
    draw(box.checked);
    const first = [...all.values()].find((node) => node.step === step);
    if (first) holder.scrollLeft = first.x - holder.clientWidth / 3;
  };
  if (scene.step !== null) showStep(scene.step);
  return { svg: () => svg, showStep };
}

/**
 * Return the box of a node.
 *
 * @param {Object} node
 * @param {boolean} onBest
 * @param {(node: Object, group: SVGElement) => void} choose
 * @returns {SVGElement}
 */
function nodeBox(node, onBest, choose) {
  const { state, x, y, width } = node;
  const token = shorten(visible(node.token));
  const frame = {
    stroke: themeColour(onBest ? "accent" : state === "dropped" ? "line-strong" : "muted"),
    "stroke-width": onBest ? 2 : 1,
    "stroke-dasharray": state === "dropped" ? "3 3" : null,
    fill: themeColour(state === "dropped" ? "surface" : "accent-soft"),
  };
  const ink = { fill: themeColour(state === "dropped" ? "muted" : "ink"), "font-weight": onBest ? 600 : 400 };
  const group = svgElement(
    "g",
    {
      class: "tree-node",
      role: "button",
      "aria-label": `${token} ${number(node.log_prob, 2)}, ${state}, step ${node.step + 1}`,
      "data-testid": "tree-node",
      "data-state": state,
      "data-id": node.id,
      click: () => choose(node, group),
      focus: () => choose(node, group),
    },
    svgElement("rect", { x, y: y - 12, width, height: 24, rx: 6, ...frame }),
  );
  if (state === "finished") {
    group.append(
      svgElement("rect", { x: x + 3, y: y - 9, width: width - 6, height: 18, rx: 4, ...frame, fill: "none" }),
    );
  }
  group.append(
    pictureText(token, x + 9, y, ink),
    pictureText(number(node.log_prob, 2), x + width - 8, y, {
      ...ink,
      "text-anchor": "end",
      "font-size": 11,
      fill: themeColour("muted"),
    }),
  );
  return group;
}

/**
 * Return a table of the other translations that the search finished; a click shows the attention of one.
 *
 * @param {{text: string, token_ids: number[], log_prob: number, score: number|null}[]} alternatives
 * @param {import("./main.js").Scene} scene
 * @returns {HTMLElement}
 */
function alternativesTable(alternatives, scene) {
  if (!alternatives.length) return element("div");
  const text = (each) =>
    scene.canAsk
      ? element("button", {
          type: "button",
          class: "link",
          text: visible(each.text),
          "data-testid": "show-alternative",
          click: () => scene.forceAll(each.token_ids),
        })
      : visible(each.text);
  const rows = alternatives.map((each) =>
    element(
      "tr",
      { "data-testid": "alternative" },
      element("td", { dir: "auto" }, text(each)),
      element("td", { class: "figure", text: number(each.log_prob) }),
      element("td", { class: "figure", text: each.score === null ? "\u2013" : number(each.score) }),
    ),
  );
  const head = ["Translation", "Log-probability", "Score"].map((name) => element("th", { scope: "col", text: name }));
  return element(
    "div",
    { class: "scroll" },
    element("h3", { text: "Other translations that the search finished" }),
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)),
  );
}
