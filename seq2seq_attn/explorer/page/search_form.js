/**
 * The form of a search: its method and a control per option, from the defaults that the server names.
 */
import { element } from "./dom.js";

/**
 * Return the control of an option: a check box, a number or a text. An empty field is null.
 *
 * @param {string} name
 * @param {number|boolean|string|null} value
 * @returns {HTMLElement}
 */
function optionField(name, value) {
  const id = `option-${name}`;
  const kind = typeof value === "boolean" ? "checkbox" : typeof value === "number" ? "number" : "text";
  const input = element("input", { id, type: kind, "data-option": name, "data-testid": id, "data-kind": typeof value });
  if (kind === "checkbox") input.checked = value;
  else input.value = value ?? "";
  if (kind === "number") input.step = "any";
  if (value === null) input.placeholder = "none";
  return element("div", { class: "field option" }, element("label", { for: id, text: name }), input);
}

/**
 * Draw the controls of a method.
 *
 * @param {HTMLElement} container
 * @param {Object<string, any>} options  names and values
 */
export function drawSearchOptions(container, options) {
  const entries = Object.entries(options).filter(([name]) => name !== "name");
  container.replaceChildren(...entries.map(([name, value]) => optionField(name, value)));
}

/**
 * Return the options of the controls.
 *
 * @param {HTMLElement} container
 * @returns {Object<string, number|boolean|string|null>}
 */
export function readSearchOptions(container) {
  const options = {};
  for (const input of container.querySelectorAll("[data-option]")) {
    const text = input.value.trim();
    const isNumber = text !== "" && Number.isFinite(Number(text)) && input.dataset.kind !== "string";
    options[input.dataset.option] =
      input.type === "checkbox" ? input.checked : text === "" ? null : isNumber ? Number(text) : text;
  }
  return options;
}

/**
 * Return a search in one line: "beam, beam_size 5".
 *
 * @param {Object<string, any>} search
 * @returns {string}
 */
export function searchName(search) {
  const { name, ...options } = search;
  const size = options.beam_size ?? options.num_samples;
  return size === undefined ? name : `${name} of ${size}`;
}
