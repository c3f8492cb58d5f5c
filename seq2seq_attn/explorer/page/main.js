/**
 * The page: its state, its views, and what the form, the tabs and the address do with them.
 *
 * Each module has one subject; this one joins them. A self-contained page is these modules one after another, in the
 * order of their imports, without their `import` lines and the word `export`. So every import is by name and without
 * renaming, there is no default export, names at the top of modules are unique, and only this module runs code when it
 * is loaded.
 *
 * Test ids (`data-testid`), the same in every view:
 *   form       ask, form, model, source, translate, stop, status, search-details, search, search-options,
 *              option-NAME (one per option of the search), own-details, own, score-own; pick, sentence (self-contained)
 *   page       theme, error, hint, live, model-line, tooltip, results, tabs, tab-VIEW, toolbar, slot, heads, head-N,
 *              head-all, panel (data-view: the shown view), detail, summary, head-row, show-head, formula
 *   sentences  source-chips, target-chips, source-chip, target-chip, start-chip (data-weight: the shown weight),
 *              readout, facts, note, level-words, level-tokens, step, step-text, links-off, links-shown,
 *              links-default, links-text, links-note, link-line
 *   map        heat-map, heat-view (takes the keys), heat-canvas, legend; <html data-draw-ms> is the drawing's time
 *   lines      lines, line-row, line-column
 *   grid       thumbnail (data-slot, data-head)
 *   search     tree, tree-node (data-state, data-id), tree-facts, force-path, show-dropped, alternative,
 *              show-alternative, no-tree
 *   tokens     token-table, scored-row, scored-token, next-tokens, next-token (data-id)
 *   what_if    do, what-slot, what-head, add-intervention, interventions, intervention, hide-word, run-what-if, before,
 *              after, change, same-tokens, after-note
 *   two_models other, compare, first-translation, second-translation, other-slot, other-head, difference-note
 *   save       save-svg, save-png, save-json, save-npz, copy-address
 * <html data-state> is "loading", "ready" (nothing shown yet), "working" or "shown".
 *
 * @typedef {Object} View  What a view returns when it is drawn.
 * @property {() => SVGElement} svg  its picture
 * @property {(step: number|null) => void} [showStep]
 * @property {Object<string, Object>} [looks]  further looks that it shows, by name
 * @property {() => Promise<void>} [run]  asks for these
 *
 * @typedef {Object} Scene  What views are drawn from, and what they may do.
 * @property {import("./api.js").Model[]} models
 * @property {import("./api.js").Model} model
 * @property {import("./api.js").LookRequest|null} request
 * @property {Object} look
 * @property {import("./look.js").Slot} slot
 * @property {number[]} heads
 * @property {"words"|"tokens"} level
 * @property {number|null} step
 * @property {"off"|"shown"|"default"} links
 * @property {import("./api.js").Intervention[]} interventions
 * @property {number[]} hide
 * @property {number|null} other
 * @property {Object} kept  results of views, as long as the look stays
 * @property {boolean} canAsk  whether there is a server
 * @property {(request: import("./api.js").LookRequest) => Promise<Object|null>} ask
 * @property {(model: number) => Object|null} embeddedOther
 * @property {(step: number|null) => void} setStep
 * @property {(heads: number[]) => void} setHeads
 * @property {(level: "words"|"tokens") => void} setLevel
 * @property {(links: "off"|"shown"|"default") => void} setLinks
 * @property {(slot: string, heads: number[]) => void} open
 * @property {(prefix: number[]) => void} force
 * @property {(tokens: number[]) => void} forceAll
 * @property {(interventions: import("./api.js").Intervention[], hide: number[]) => void} setWhatIf
 * @property {(model: number) => void} setOther
 * @property {() => void} redraw
 */
import { flushAddress, forgetAddress, readAddress, writeAddress } from "./address.js";
import { drawAllHeads, kindName } from "./all_heads.js";
import { embeddedResults, fetchLook, fetchModels, RequestError } from "./api.js";
import { currentTheme, headColour } from "./colour.js";
import { announce, byId, element, moveByArrows, number, showTooltip, visible } from "./dom.js";
import { drawHeadLines } from "./head_lines.js";
import { drawFormula, drawSummary } from "./head_summary.js";
import { HeatMap } from "./heat_map.js";
import { blocksOf, linksOf } from "./links.js";
import { decodeLook, rowOfStep, weightMap } from "./look.js";
import { besideEachOther, mapPicture, pngFile, svgFile } from "./picture.js";
import { saveFile, weightsJson, weightsNpz } from "./save.js";
import { drawSearchOptions, readSearchOptions, searchName } from "./search_form.js";
import { drawSearchTree } from "./search_tree.js";
import { drawSentences } from "./sentences.js";
import { drawTokenScores } from "./token_scores.js";
import { drawTwoModels } from "./two_models.js";
import { drawWhatIf } from "./what_if.js";

const VIEWS = {
  map: { name: "Heat map", draw: drawMapView, slot: true },
  lines: { name: "Lines", draw: drawHeadLines, slot: true },
  grid: { name: "All heads", draw: drawAllHeads },
  search: { name: "Search", draw: drawSearchTree },
  tokens: { name: "Tokens", draw: drawTokenScores },
  what_if: { name: "What if", draw: drawWhatIf, slot: true },
  two_models: { name: "Two models", draw: drawTwoModels, slot: true },
};
const NO_REQUEST = { target: null, target_tokens: null, prefix: null, interventions: [], hide: [] };

const embedded = embeddedResults();
/** @type {import("./api.js").Models} */
let description = null;
/** @type {{request: Object|null, look: Object|null, sentence: number|null, view: string, slot: string|null,
 *          heads: number[], level: "words"|"tokens", step: number|null, links: string, other: number|null,
 *          interventions: Object[], hide: number[], kept: Object}} */
const state = {
  request: null,
  look: null,
  sentence: null,
  view: "map",
  slot: null,
  heads: [0],
  level: "words",
  step: null,
  links: "off",
  other: null,
  interventions: [],
  hide: [],
  kept: {},
};
let shownView = null;
let shownSentences = null;
let running = null;

/** Draw the view of the heat map. */
function drawMapView(panel, scene) {
  document.body.getBoundingClientRect(); // the layout of the rest of the page is no part of the map's time
  const started = performance.now();
  const { look, slot, heads, level } = scene;
  const map = weightMap(look, slot, heads, level);
  const links = linksOf(scene);
  const blocks = links ? blocksOf(map, links.pairs, look.links.shift) : [];
  const one = level === "words" ? "word" : "token";
  const heatMap = new HeatMap(panel, map, {
    started,
    label: `Weights of ${slot.name}, head ${heads.join(", ")}`,
    rowName: slot.row_tokens === "source" ? `source ${one}` : `target ${one}`,
    columnName: slot.column_tokens === "source" ? `source ${one}` : `target ${one}`,
    row: rowOfStep(slot, map, scene.step),
    blocks,
    onRow: (row) => {
      if (slot.kind === "encoder") return;
      const { tokens } = map.rows[row];
      setStep(tokens.includes(state.step) ? null : tokens[0]);
    },
  });
  return {
    svg: () => besideEachOther([mapPicture(map, `${slot.name}, head ${heads.join(", ")}`, undefined, blocks)]),
    showStep: (step) => heatMap.showRow(rowOfStep(slot, map, step)),
  };
}

/** @returns {Scene} */
function sceneOfState() {
  const { look } = state;
  return {
    ...state,
    slot: look.slots.find((slot) => slot.name === state.slot),
    models: description.models,
    model: description.models[look.model],
    canAsk: !embedded,
    ask,
    embeddedOther,
    setStep,
    setHeads: (heads) => change({ heads }),
    setLevel: (level) => change({ level }),
    setLinks: (links) => change({ links }),
    open: (slot, heads) => {
      change({ slot, heads, view: "map" });
      byId("tab-map").focus();
    },
    force: (prefix) => translate({ ...state.request, ...NO_REQUEST, prefix }),
    forceAll: (tokens) => translate({ ...state.request, ...NO_REQUEST, target_tokens: tokens }),
    setWhatIf: (interventions, hide) => change({ interventions, hide }),
    setOther: (other) => change({ other }),
    redraw: () => change({}),
  };
}

/** Change what is shown. */
function change(changes) {
  Object.assign(state, changes);
  redraw();
  saveAddress(false);
}

/** Show a decoding step, or all. Only what depends on it is drawn anew. */
function setStep(step) {
  state.step = step;
  shownSentences?.showStep(step);
  shownView?.showStep?.(step);
  saveAddress(false);
}

/** Draw everything from the state; the focus stays where it was. */
function redraw() {
  if (!state.look) return;
  const active = document.activeElement;
  const sameKind = active?.dataset?.testid
    ? [...document.querySelectorAll(`[data-testid="${active.dataset.testid}"]`)]
    : [];
  const place = sameKind.indexOf(active);
  showTooltip(null);
  fitStateToLook();
  const scene = sceneOfState();
  for (const tab of byId("tabs").children) {
    const selected = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", String(selected));
    tab.setAttribute("tabindex", selected ? "0" : "-1");
  }
  scrollTabs();
  drawSlots(scene);
  shownSentences = drawSentences(byId("sentences"), scene);
  const panel = byId("panel");
  panel.replaceChildren();
  panel.dataset.view = state.view;
  panel.setAttribute("aria-labelledby", `tab-${state.view}`);
  shownView = VIEWS[state.view].draw(panel, scene);
  byId("summary").hidden = !scene.slot.heads_summary.length;
  drawSummary(byId("summary"), scene);
  drawFormula(byId("formula"), scene);
  byId("model-line").textContent = modelLine(scene.model);
  if (active && !active.isConnected && place >= 0) {
    const again = document.querySelectorAll(`[data-testid="${active.dataset.testid}"]`);
    again[Math.min(place, again.length - 1)]?.focus({ preventScroll: true });
  }
}

/** Scroll the tabs until the chosen one is visible; the page itself stays where it is. */
function scrollTabs() {
  const [tabs, tab] = [byId("tabs"), byId(`tab-${state.view}`)].map((node) => node.getBoundingClientRect());
  byId("tabs").scrollLeft += Math.max(0, tab.right - tabs.right) - Math.max(0, tabs.left - tab.left);
}

/** Replace what the look does not have: a slot, heads, a step or a view. A guided head is shown first. */
function fitStateToLook() {
  const { slots, target, links } = state.look;
  const guided = links?.default?.guided;
  const named = (name) => slots.find((each) => each.name === name);
  if (guided && !named(state.slot)) Object.assign(state, { slot: guided.slot, heads: [guided.head] });
  const slot = named(state.slot) ?? slots.filter((each) => each.kind === "cross").at(-1) ?? slots[0];
  state.slot = slot.name;
  state.heads = state.heads.filter((head) => head >= 0 && head < slot.heads);
  if (!state.heads.length) state.heads = [0];
  if (state.step !== null && !(state.step >= 0 && state.step < target.tokens.length)) state.step = null;
  if (!visibleViews().includes(state.view)) state.view = "map";
}

/** @returns {string[]} the views that this page can show */
function visibleViews() {
  return Object.keys(VIEWS).filter((view) => {
    if (view === "what_if") return !embedded;
    if (view === "search") return !embedded || embedded.looks.some((look) => look.tree);
    if (view === "tokens") return !embedded || embedded.looks.some((look) => look.target.token_log_probs.length);
    if (view === "two_models") return description.models.length > 1;
    return true;
  });
}

/** Return a model in one line. */
function modelLine(model) {
  if (!model.name) return ""; // of a notebook, which has the maps alone
  const millions = (model.parameters / 1e6).toFixed(model.parameters < 1e7 ? 1 : 0);
  const name = model.name.includes(model.architecture) ? model.name : `${model.name} · ${model.architecture}`;
  return `${name} · ${millions} M parameters · ${model.source_language} → ${model.target_language}`;
}

/** Draw the choice of an attention and of its heads. */
function drawSlots(scene) {
  byId("toolbar").hidden = !VIEWS[state.view].slot;
  const select = byId("slot");
  const titles = new Map(scene.model.slots.map((slot) => [slot.name, slot.preset ?? ""]));
  const groups = ["cross", "encoder", "self"].map((kind) => {
    const slots = scene.look.slots.filter((slot) => slot.kind === kind);
    const options = slots.map((slot) =>
      element("option", { value: slot.name, text: [slot.name, titles.get(slot.name)].filter(Boolean).join(" · ") }),
    );
    return slots.length ? [element("optgroup", { label: kindName(kind) }, ...options)] : [];
  });
  select.replaceChildren(...groups.flat());
  select.value = state.slot;

  const all = Array.from({ length: scene.slot.heads }, (_, head) => head);
  const button = (text, heads, testId, label) => {
    const pressed = heads.length === 1 ? state.heads.includes(heads[0]) : state.heads.length === heads.length;
    const choose = (event) => {
      const several = event.shiftKey || event.ctrlKey || event.metaKey;
      const rest = state.heads.filter((head) => head !== heads[0]);
      if (!several || heads.length > 1) change({ heads });
      else
        change({ heads: pressed && rest.length ? rest : [...rest, heads[0]].sort((first, second) => first - second) });
    };
    const node = element("button", {
      type: "button",
      text,
      title: heads.length === 1 ? "Shift and a click add a head; maps show the mean" : "Mean of all heads",
      "aria-label": label,
      "aria-pressed": String(pressed),
      "data-testid": testId,
      click: choose,
    });
    if (state.view === "lines" && heads.length === 1) {
      const dot = element("span", { class: "dot", "aria-hidden": "true" });
      dot.style.backgroundColor = headColour(heads[0]);
      node.prepend(dot);
    }
    return node;
  };
  const buttons = all.map((head) => button(String(head), [head], `head-${head}`, `Head ${head}`));
  if (all.length > 1) buttons.unshift(button("All", all, "head-all", "All heads"));
  byId("heads").replaceChildren(
    element("span", { class: "muted", text: all.length > 1 ? "Heads" : "Head" }),
    ...buttons,
  );
  moveByArrows(byId("heads"), "button");
}

/** Build the tabs. */
function buildTabs() {
  const tabs = visibleViews().map((view) =>
    element("button", {
      type: "button",
      role: "tab",
      id: `tab-${view}`,
      "aria-controls": "panel",
      "data-view": view,
      "data-testid": `tab-${view}`,
      text: VIEWS[view].name,
      focus: () => state.look && view !== state.view && change({ view }),
      click: () => view !== state.view && change({ view }),
    }),
  );
  byId("tabs").replaceChildren(...tabs);
  moveByArrows(byId("tabs"), "button");
}

/** Show one line about what went wrong, or hide it. */
function showError(text) {
  byId("error").hidden = !text;
  byId("error").textContent = text ?? "";
}

/** Show whether a request is under way. */
function setWorking(working) {
  document.documentElement.dataset.state = working ? "working" : state.look ? "shown" : "ready";
  byId("stop").hidden = !working;
  byId("translate").setAttribute("aria-disabled", String(working));
  if (working) byId("status").textContent = "Working\u2026";
}

/**
 * Send a request and return its look, or null if it failed or a newer one took its place.
 *
 * @param {import("./api.js").LookRequest} request
 * @returns {Promise<Object|null>}
 */
async function ask(request) {
  running?.abort();
  const own = new AbortController();
  running = own;
  setWorking(true);
  showError(null);
  try {
    const look = { ...decodeLook(await fetchLook(request, own.signal)), request };
    byId("status").textContent = `${number(look.seconds, 2)} s`;
    return look;
  } catch (error) {
    if (error.name === "AbortError") return null;
    byId("status").textContent = "";
    if (!(error instanceof RequestError)) throw error;
    showError(error.message);
    return null;
  } finally {
    if (running === own) {
      running = null;
      setWorking(false);
    }
  }
}

/** Return the fields of a request in one order. */
function ordered({ model, source, search, target, target_tokens, prefix, interventions, hide }) {
  return { model, source, search, target, target_tokens, prefix, interventions, hide };
}

/**
 * Translate, and show the result. `changes` are what of the view changes with it; `push`: as a page to go back to.
 *
 * @returns {Promise<boolean>} whether the result is shown: not if it failed, was stopped or a newer one took its place
 */
async function translate(request, changes = {}, push = true) {
  if (!request.source.trim()) {
    showError("The source is empty: type a sentence.");
    return false;
  }
  const most = description.limits.max_characters;
  if (Math.max(request.source.length, request.target?.length ?? 0) > most) {
    showError(`The text is longer than ${most} characters: shorten it.`);
    return false;
  }
  request = ordered(request);
  const look = await ask({ ...request, tree: true });
  if (!look) return false;
  showLook(look, { request, step: null, interventions: [], hide: [], ...changes }, push);
  announce(`Translation: ${look.target.text}`);
  return true;
}

/** Show a look. */
function showLook(look, changes, push) {
  const first = !state.look;
  if (state.look?.model !== look.model) state.slot = changes.slot ?? null;
  Object.assign(state, { look, kept: {}, ...changes });
  for (const id of ["results", "detail"]) byId(id).hidden = false;
  byId("hint").hidden = true;
  document.documentElement.dataset.state = "shown";
  document.title = `${visible(look.source.text.slice(0, 60))} \u2013 seq2seq-attn explorer`;
  redraw();
  saveAddress(push && !first);
}

/**
 * Return the looks of another model at the shown sentence of a self-contained page: of its own translation, and of the
 * one that is shown. Each sentence has a look of each model.
 */
function embeddedOther(model) {
  const same = embedded?.forced.find((each) => each.of === state.sentence && each.look.model === model);
  if (!same) return null;
  const own = embedded.looks[state.sentence - state.look.model + model];
  return { model, own: decodeLook(own), same: decodeLook(same.look) };
}

/** Return the request that the form holds. */
function requestOfForm() {
  const name = byId("search").value;
  const search = name ? { name, ...readSearchOptions(byId("search-options")) } : null;
  return { model: Number(byId("model").value), source: byId("source").value, search, ...NO_REQUEST };
}

/** Fill the form with a request. */
function fillForm(request) {
  byId("model").value = String(description.models[request.model] ? request.model : 0);
  fillModelFields();
  byId("source").value = request.source;
  if (typeof request.target === "string") {
    byId("own").value = request.target;
    byId("own-details").open = true;
  }
  if (request.search && description.searches[request.search.name]) {
    byId("search").value = request.search.name;
    byId("search-details").open = true;
    showSearchOptions(request.search);
  }
}

/** Draw the options of the chosen search: those of a request, else the run's own, else the defaults. */
function showSearchOptions(values) {
  const name = byId("search").value;
  const run = description.models[Number(byId("model").value)].default_search;
  const own = run.name === name ? run : {};
  drawSearchOptions(byId("search-options"), name ? { ...description.searches[name], ...own, ...values } : {});
}

/** Fit the form to the chosen model. */
function fillModelFields() {
  const model = description.models[Number(byId("model").value)];
  const names = Object.keys(description.searches).map((name) => element("option", { value: name, text: name }));
  const own = element("option", { value: "", text: `As the run: ${searchName(model.default_search)}` });
  byId("search").replaceChildren(own, ...names);
  showSearchOptions({});
  byId("source-label").textContent = `Source (${model.source_language})`;
  byId("own-label").textContent = `Translation (${model.target_language})`;
  if (!state.look) byId("model-line").textContent = modelLine(model);
}

/** Connect the form with what it does. */
function connectForm() {
  byId("model").append(...description.models.map((model, value) => element("option", { value, text: model.name })));
  byId("model-field").hidden = description.models.length < 2;
  byId("model").addEventListener("change", fillModelFields);
  byId("search").addEventListener("change", () => showSearchOptions({}));
  fillModelFields();
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    translate(requestOfForm());
  });
  byId("source").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("form").requestSubmit();
  });
  byId("score-own").addEventListener("click", () => {
    const target = byId("own").value;
    if (target.trim()) translate({ ...requestOfForm(), target }, { view: "tokens" });
    else showError("The translation is empty: type one to score.");
  });
  byId("stop").addEventListener("click", () => {
    running?.abort();
    byId("status").textContent = "Stopped";
  });
}

/** Connect the toolbar, the files and the theme with what they do. */
function connectControls() {
  byId("slot").addEventListener("change", () => change({ slot: byId("slot").value }));
  const looks = () => ({ "": state.look, ...shownView.looks });
  const name = (end) => `attention_${state.view}.${end}`;
  byId("save-svg").addEventListener("click", () => saveFile(name("svg"), svgFile(shownView.svg())));
  byId("save-png").addEventListener("click", async () => saveFile(name("png"), await pngFile(shownView.svg())));
  byId("save-json").addEventListener("click", () => saveFile(name("json"), weightsJson(looks())));
  byId("save-npz").addEventListener("click", () => saveFile(name("npz"), weightsNpz(looks())));
  byId("copy-address").addEventListener("click", async () => {
    flushAddress();
    const copied = await navigator.clipboard?.writeText(location.href).then(
      () => true,
      () => false,
    );
    byId("copy-address").textContent = copied ? "Copied" : "Copy it from the address bar";
    setTimeout(() => {
      byId("copy-address").textContent = "Copy address";
    }, 2000);
  });
  const showTheme = () => {
    const next = currentTheme() === "dark" ? "light" : "dark";
    byId("theme").textContent = next === "dark" ? "Dark" : "Light";
    byId("theme").setAttribute("aria-label", `Switch to ${next} colours`);
  };
  byId("theme").addEventListener("click", () => {
    const theme = currentTheme() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    keepTheme(theme);
    showTheme();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    showTheme();
    redraw();
  });
  const theme = keptTheme();
  if (theme) document.documentElement.dataset.theme = theme;
  showTheme();
  const inNotebook = location.protocol === "about:"; // a frame without an address of its own
  byId("copy-address").hidden = byId("address-hint").hidden = inNotebook;
}

/** Keep the chosen theme for the next visit, where the browser lets the page. */
function keepTheme(theme) {
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // A frame of a notebook may keep nothing.
  }
}

/** @returns {"dark"|"light"|null} the theme that was chosen before */
function keptTheme() {
  try {
    const theme = localStorage.getItem("theme");
    return theme === "dark" || theme === "light" ? theme : null;
  } catch {
    return null;
  }
}

/** Write the view to the address. */
function saveAddress(push) {
  const { request, sentence, view, slot, heads, level, step, links, other, interventions, hide } = state;
  const ran = Boolean(shownView.looks);
  writeAddress({ request, sentence, view, slot, heads, level, step, links, other, interventions, hide, ran }, push);
}

/** Show what the address names. */
async function restore() {
  const address = readAddress();
  if (!address) {
    if (location.hash.length > 1) showError("The address names no view of this page.");
    if (embedded && !state.look) showSentence(0, {});
    return;
  }
  const { request, sentence, ran, ...shown } = address;
  if (embedded) {
    showSentence(embedded.looks[sentence] ? sentence : 0, shown, false);
    return;
  }
  if (!request) return;
  const full = ordered({ model: 0, search: null, ...NO_REQUEST, ...request });
  if (!description.models[full.model]) full.model = 0;
  fillForm(full);
  if (state.look && JSON.stringify(full) === JSON.stringify(state.request)) change(shown);
  else if (!(await translate(full, shown, false))) return;
  if (ran && !shownView.looks) await shownView.run?.();
}

/** Show a sentence of a self-contained page. */
function showSentence(sentence, changes, push = true) {
  byId("sentence").value = String(sentence);
  showLook(decodeLook(embedded.looks[sentence]), { sentence, step: null, ...changes }, push);
}

/** Start the page. */
async function start() {
  document.documentElement.dataset.state = "loading";
  connectControls();
  try {
    description = embedded ? embedded.models : await fetchModels();
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    showError(error.message);
    return;
  }
  buildTabs();
  document.documentElement.dataset.state = "ready";
  if (embedded) {
    const name = (look) => (description.models.length > 1 ? ` (${description.models[look.model].name})` : "");
    const text = (look, index) => `${index + 1}. ${visible(look.source.text.slice(0, 80))}${name(look)}`;
    const options = embedded.looks.map((look, index) => element("option", { value: index, text: text(look, index) }));
    byId("sentence").append(...options);
    byId("sentence").addEventListener("change", () => showSentence(Number(byId("sentence").value), {}));
    byId("pick").hidden = embedded.looks.length < 2;
  } else {
    byId("ask").hidden = false;
    byId("hint").textContent =
      "Type a sentence and press Translate. The page then shows which source words each word of the translation " +
      "attends to, in every layer and head, and how the search found it.";
    connectForm();
  }
  addEventListener("popstate", forgetAddress); // at once; hashchange may come after a timer that writes the address
  addEventListener("hashchange", restore);
  await restore();
}

start();
