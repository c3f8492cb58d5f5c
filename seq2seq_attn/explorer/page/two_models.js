/**
 * Two models on one sentence: their translations beside each other, and the difference of their maps.
 *
 * Maps differ by their words alone if both models read the same words, so the second model's map is of the first
 * model's translation: its tokens if the tokenizers are equal, its text otherwise.
 */
import { element, number } from "./dom.js";
import { differenceOfMaps, weightMap } from "./look.js";
import { besideEachOther, mapPicture } from "./picture.js";
import { drawMaps, translationCard } from "./what_if.js";

/**
 * Draw the view.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @returns {import("./main.js").View}
 */
export function drawTwoModels(panel, scene) {
  const { look, kept, models } = scene;
  const others = models.map((model, index) => [index, model]).filter(([index]) => index !== look.model);
  const other = others.some(([index]) => index === scene.other) ? scene.other : others[0][0];
  const choice = element("select", { id: "other", "data-testid": "other" });
  choice.append(...others.map(([value, model]) => element("option", { value, text: model.name })));
  choice.value = other;
  choice.addEventListener("change", () => scene.setOther(Number(choice.value)));
  const row = [element("label", { for: "other", text: "Second model" }), choice];
  const toolbar = element("div", { class: "toolbar" }, element("span", { class: "field inline" }, ...row));
  panel.append(toolbar);
  const empty = { svg: () => besideEachOther([mapPicture(mapOfFirst(scene), scene.slot.name)]) };
  const results = kept.twoModels?.model === other ? kept.twoModels : scene.embeddedOther(other);
  if (!results && !scene.canAsk) {
    panel.append(
      element("p", { class: "muted", text: "The page holds no comparison of this sentence with that model." }),
    );
    return empty;
  }
  const run = async () => {
    const base = { ...scene.request, model: other, prefix: null, target_tokens: null, target: null, tree: false };
    const own = await scene.ask(base);
    const equal = models[look.model].tokenizer === models[other].tokenizer;
    const forced = equal ? { target_tokens: look.target.token_ids } : { target: look.target.text };
    const same = own && (await scene.ask({ ...base, ...forced }));
    if (!same) return;
    kept.twoModels = { model: other, own, same };
    scene.redraw();
  };
  if (scene.canAsk) {
    const attributes = { type: "button", class: "primary", text: "Compare", "data-testid": "compare", click: run };
    toolbar.append(element("button", attributes));
  }
  return results ? drawComparison(panel, scene, models[other], results) : { ...empty, run };
}

/**
 * Return the map of the shown slot and heads of the first model.
 *
 * @param {import("./main.js").Scene} scene
 * @returns {import("./look.js").WeightMap}
 */
function mapOfFirst(scene) {
  return weightMap(scene.look, scene.slot, scene.heads, scene.level);
}

/**
 * Draw both translations, both maps and their difference.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @param {import("./api.js").Model} second
 * @param {{own: Object, same: Object}} results
 * @returns {import("./main.js").View}
 */
function drawComparison(panel, scene, second, { own, same }) {
  const { look, kept, model } = scene;
  panel.append(
    element(
      "div",
      { class: "columns even" },
      translationCard(model.name, look, own, "first-translation"),
      translationCard(second.name, own, look, "second-translation"),
    ),
  );
  const fits = (slot) => slot.kind === scene.slot.kind;
  const wanted = [(slot) => slot.name === kept.otherSlot, (slot) => slot.name === scene.slot.name, fits, () => true];
  const slot = wanted.map((test) => same.slots.find(test)).find(Boolean);
  const slotChoice = element("select", { id: "other-slot", "data-testid": "other-slot" });
  slotChoice.append(...same.slots.map((each) => element("option", { value: each.name, text: each.name })));
  slotChoice.value = slot.name;
  const headChoice = element("select", { id: "other-head", "data-testid": "other-head" });
  headChoice.append(element("option", { value: "", text: "mean of all heads" }));
  for (let head = 0; head < slot.heads; head++)
    headChoice.append(element("option", { value: head, text: `head ${head}` }));
  const same_head = scene.heads.length === 1 && scene.heads[0] < slot.heads ? scene.heads[0] : null;
  const head = kept.otherHead === undefined ? same_head : kept.otherHead < slot.heads ? kept.otherHead : null;
  headChoice.value = head ?? "";
  slotChoice.addEventListener("change", () => {
    kept.otherSlot = slotChoice.value;
    scene.redraw();
  });
  headChoice.addEventListener("change", () => {
    kept.otherHead = headChoice.value === "" ? null : Number(headChoice.value);
    scene.redraw();
  });
  panel.append(
    element(
      "div",
      { class: "toolbar" },
      element(
        "span",
        { class: "field inline" },
        element("label", { for: "other-slot", text: `Attention of ${second.name}` }),
        slotChoice,
      ),
      element(
        "span",
        { class: "field inline" },
        element("label", { for: "other-head", class: "visually-hidden", text: "Head" }),
        headChoice,
      ),
    ),
  );
  const heads = head === null ? Array.from({ length: slot.heads }, (_, index) => index) : [head];
  const first = mapOfFirst(scene);
  const last = weightMap(same, slot, heads, scene.level);
  const difference = differenceOfMaps(first, last);
  const maps = [
    [model.name, first],
    [second.name, last],
  ];
  const logProb = number(same.target.log_prob);
  const forced = `${second.name} reads the translation of ${model.name}: log-probability ${logProb}.`;
  if (difference) maps.push([`${model.name} \u2212 ${second.name}`, difference]);
  const equal = model.tokenizer === second.tokenizer;
  const way =
    scene.level === "tokens" && !equal ? "The tokenizers differ: compare words." : "The words of the two maps differ.";
  panel.append(
    element("p", {
      class: "muted small",
      "data-testid": "difference-note",
      text: difference ? forced : `${forced} No difference: ${way}`,
    }),
  );
  drawMaps(panel, maps, scene);
  return {
    svg: () => besideEachOther(maps.map(([name, map]) => mapPicture(map, name))),
    looks: { other: same },
  };
}
