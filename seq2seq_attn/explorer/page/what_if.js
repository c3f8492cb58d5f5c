/**
 * What if: heads or layers knocked out or made uniform, source words hidden; the translation and its log-probability
 * before and after, and the maps of both beside each other.
 *
 * "After" is translated anew. The translation before is scored with the same changes too, so that the change of its
 * log-probability is that of the same tokens. A result is shown as long as its changes are those of the form.
 */
import { weightScale } from "./colour.js";
import { element, moveByArrows, number, visible } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { weightMap } from "./look.js";
import { besideEachOther, mapPicture } from "./picture.js";

const DOES = { knock_out: "Knock out", uniform: "Make uniform" };

/**
 * Return for each word of the second list whether it is not in a longest common subsequence of both.
 *
 * @param {string[]} first
 * @param {string[]} second
 * @returns {boolean[]}
 */
export function changedWords(first, second) {
  const longest = Array.from({ length: first.length + 1 }, () => new Uint16Array(second.length + 1));
  for (let left = first.length - 1; left >= 0; left--) {
    for (let right = second.length - 1; right >= 0; right--) {
      longest[left][right] =
        first[left] === second[right]
          ? longest[left + 1][right + 1] + 1
          : Math.max(longest[left + 1][right], longest[left][right + 1]);
    }
  }
  const changed = second.map(() => true);
  let [left, right] = [0, 0];
  while (left < first.length && right < second.length) {
    if (first[left] === second[right]) {
      changed[right++] = false;
      left++;
    } else if (longest[left + 1][right] >= longest[left][right + 1]) left++;
    else right++;
  }
  return changed;
}

/**
 * Return a card with a translation and its log-probability; words that another lacks are marked.
 *
 * @param {string} title
 * @param {Object} look
 * @param {Object|null} other
 * @param {string} testId
 * @returns {HTMLElement}
 */
export function translationCard(title, look, other, testId) {
  const { target } = look;
  const changed = other ? changedWords(other.target.word_texts, target.word_texts) : target.word_texts.map(() => false);
  const words = target.word_texts.flatMap((word, index) => [
    changed[index] ? element("mark", { text: visible(word) }) : visible(word),
    " ",
  ]);
  return element(
    "div",
    { class: "result", "data-testid": testId },
    element("h3", { text: title }),
    element("p", { class: "translation", dir: "auto" }, ...words),
    element("p", { class: "muted small", text: `log-probability ${number(target.log_prob)}` }),
  );
}

/**
 * Return a number with its sign.
 *
 * @param {number} value
 * @returns {string}
 */
export function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

/**
 * Return the name of an intervention.
 *
 * @param {import("./api.js").Intervention} intervention
 * @returns {string}
 */
function interventionName(intervention) {
  const where = intervention.head === null ? "all heads" : `head ${intervention.head}`;
  return `${DOES[intervention.do]} ${intervention.slot}, ${where}`;
}

/**
 * Draw the view.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @returns {import("./main.js").View}
 */
export function drawWhatIf(panel, scene) {
  const { look, kept } = scene;
  const options = (entries) => entries.map(([value, text]) => element("option", { value, text }));
  const doing = element("select", { id: "do", "data-testid": "do" });
  const slot = element("select", { id: "what-slot", "data-testid": "what-slot" });
  slot.append(...options(look.slots.map((each) => [each.name, each.name])));
  slot.value = scene.slot.name;
  const head = element("select", { id: "what-head", "data-testid": "what-head" });
  const fillChoices = () => {
    const named = (each) => each.name === slot.value;
    const [{ heads }, { changes }] = [look.slots.find(named), scene.model.slots.find(named)];
    const choices = Array.from({ length: heads }, (_, index) => [String(index), `head ${index}`]);
    head.replaceChildren(...options([["", "all heads"], ...choices]));
    const chosen = doing.value;
    doing.replaceChildren(...options(changes.map((does) => [does, DOES[does]])));
    if (changes.includes(chosen)) doing.value = chosen;
  };
  slot.addEventListener("change", fillChoices);
  fillChoices();
  if (scene.heads.length === 1) head.value = String(scene.heads[0]);
  const change = scene.setWhatIf;
  const add = element("button", {
    type: "button",
    text: "Add",
    "data-testid": "add-intervention",
    click: () => {
      if (!doing.value) return; // an attention of the user's own may have no changes
      const intervention = { do: doing.value, slot: slot.value, head: head.value === "" ? null : Number(head.value) };
      const same = (each) => JSON.stringify(each) === JSON.stringify(intervention);
      if (!scene.interventions.some(same)) change([...scene.interventions, intervention], scene.hide);
    },
  });
  const field = (label, control) =>
    element(
      "span",
      { class: "field inline" },
      element("label", { for: control.id, class: "visually-hidden", text: label }),
      control,
    );

  const active = scene.interventions.map((intervention, index) =>
    element(
      "button",
      {
        type: "button",
        class: "pill",
        "aria-label": `Remove: ${interventionName(intervention)}`,
        "data-testid": "intervention",
        click: () =>
          change(
            scene.interventions.filter((_, other) => other !== index),
            scene.hide,
          ),
      },
      interventionName(intervention),
      element("span", { "aria-hidden": "true", text: " \u00d7" }),
    ),
  );
  const words = look.source.word_texts.map((word, index) => {
    const hidden = scene.hide.includes(index);
    return element("button", {
      type: "button",
      class: "chip hide-chip",
      text: visible(word),
      "aria-pressed": String(hidden),
      "aria-label": `Hide ${word}`,
      "data-testid": "hide-word",
      click: () => {
        const hide = hidden ? scene.hide.filter((each) => each !== index) : [...scene.hide, index];
        change(
          scene.interventions,
          hide.sort((first, second) => first - second),
        );
      },
    });
  });
  const wordList = element(
    "div",
    { class: "chips", dir: "auto", role: "group", "aria-label": "Hide source words" },
    ...words,
  );
  moveByArrows(wordList, ".chip");
  const nothing = !scene.interventions.length && !scene.hide.length;
  const changes = { interventions: scene.interventions, hide: scene.hide };
  const run = async () => {
    if (nothing) return;
    const request = { ...scene.request, ...changes, tree: false };
    const after = await scene.ask(request);
    const tokens = { target: null, prefix: null, target_tokens: look.target.token_ids };
    const same = after && (await scene.ask({ ...request, ...tokens }));
    if (!same) return;
    kept.whatIf = { of: JSON.stringify(changes), after, same };
    scene.redraw();
  };
  const button = element("button", {
    type: "button",
    class: "primary",
    text: "Translate with these changes",
    "data-testid": "run-what-if",
    disabled: nothing,
    click: run,
  });
  panel.append(
    element("h3", { text: "Heads and layers" }),
    element(
      "div",
      { class: "toolbar" },
      field("What to do", doing),
      field("Attention", slot),
      field("Head", head),
      add,
    ),
    element("div", { class: "chips", "data-testid": "interventions" }, ...active),
    element("h3", { text: "Hide source words from attention" }),
    wordList,
    element("div", { class: "toolbar" }, button),
  );
  if (kept.whatIf?.of !== JSON.stringify(changes)) {
    return { svg: () => besideEachOther([mapPicture(mapOf(scene, look), scene.slot.name)]), run };
  }
  return drawBeforeAndAfter(panel, scene, kept.whatIf);
}

/**
 * Return the map of the shown slot and heads in a look.
 *
 * @param {import("./main.js").Scene} scene
 * @param {Object} look
 * @returns {import("./look.js").WeightMap}
 */
function mapOf(scene, look) {
  const slot = look.slots.find((each) => each.name === scene.slot.name);
  return weightMap(look, slot, scene.heads, scene.level);
}

/**
 * Draw both translations, the change of the log-probability and both maps.
 *
 * @param {HTMLElement} panel
 * @param {import("./main.js").Scene} scene
 * @param {{after: Object, same: Object}} results
 * @returns {import("./main.js").View}
 */
function drawBeforeAndAfter(panel, scene, { after, same }) {
  const { look } = scene;
  const before = translationCard("Before", look, after, "before");
  const card = translationCard("After", after, look, "after");
  const change = after.target.log_prob - look.target.log_prob;
  card.append(element("p", { class: "change", "data-testid": "change", text: `${signed(change)} against before` }));
  const loss = same.target.log_prob - look.target.log_prob;
  const text =
    `The translation before, scored with these changes: log-probability ${number(same.target.log_prob)}, ` +
    `${signed(loss)} against before.`;
  panel.append(
    element("div", { class: "columns even" }, before, card),
    element("p", { "data-testid": "same-tokens", text }),
    ...after.notes.map((note) => element("p", { class: "muted small", "data-testid": "after-note", text: note })),
  );
  const maps = [
    ["Before", mapOf(scene, look)],
    ["After", mapOf(scene, after)],
  ];
  const [minimum, maximum] = [
    Math.min(...maps.map(([, map]) => map.minimum)),
    Math.max(...maps.map(([, map]) => map.maximum)),
  ];
  drawMaps(panel, maps, scene, weightScale(minimum, maximum));
  const title = (name) => `${name}: ${scene.slot.name}`;
  const scale = () => weightScale(minimum, maximum);
  return {
    svg: () => besideEachOther(maps.map(([name, map]) => mapPicture(map, title(name), scale()))),
    looks: { after },
  };
}

/**
 * Draw maps beside each other.
 *
 * @param {HTMLElement} panel
 * @param {[string, import("./look.js").WeightMap][]} maps
 * @param {import("./main.js").Scene} scene
 * @param {import("./colour.js").Scale} [scale]
 */
export function drawMaps(panel, maps, scene, scale) {
  const holders = maps.map(([name]) => element("div", { class: "result" }, element("h3", { text: name })));
  panel.append(element("div", { class: `columns even count-${maps.length}` }, ...holders));
  maps.forEach(([name, map], index) => {
    const label = `${name}, weights of ${scene.slot.name}`;
    new HeatMap(holders[index], map, { label, rowName: "query", columnName: "key", scale, height: 520 });
  });
}
