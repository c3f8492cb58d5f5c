/**
 * Requests to the server, or the results in the page itself when it is one self-contained file.
 *
 * @typedef {Object} SlotDescription  An attention of a model.
 * @property {string} name  "cross/0"
 * @property {"cross"|"encoder"|"self"} kind
 * @property {number} layer
 * @property {number} heads
 * @property {string|null} preset
 * @property {string} title
 * @property {string} formula
 * @property {Object<string, string|null>} parts  score, pattern, normalizer, mix, gate
 * @property {boolean} sums_to_one
 * @property {("knock_out"|"uniform")[]} changes  what its heads can be made to do
 *
 * @typedef {Object} Model
 * @property {string} name
 * @property {string} run
 * @property {string} architecture
 * @property {number} parameters
 * @property {string} source_language
 * @property {string} target_language
 * @property {string} tokenizer  A hash: equal tokenizers give equal tokens.
 * @property {Object} default_search
 * @property {SlotDescription[]} slots
 *
 * @typedef {Object} Models  What GET api/models returns.
 * @property {string} package_version
 * @property {{max_source_tokens: number, max_characters: number}} limits
 * @property {Object<string, Object>} searches
 * @property {Model[]} models
 *
 * @typedef {Object} Intervention
 * @property {"knock_out"|"uniform"} do
 * @property {string} slot
 * @property {number|null} head  null: the whole layer
 *
 * @typedef {Object} LookRequest  What POST api/look takes.
 * @property {number} model
 * @property {string} source
 * @property {Object|null} search
 * @property {string|null} target
 * @property {number[]|null} target_tokens
 * @property {number[]|null} prefix
 * @property {Intervention[]} interventions
 * @property {number[]} hide
 * @property {boolean} tree
 */

/** A sentence for the user: what is wrong and the way out. */
export class RequestError extends Error {}

/**
 * Return the results in the page, or null when a server answers.
 *
 * @returns {{models: Models, looks: Object[], forced: {of: number, look: Object}[]}|null}
 */
export function embeddedResults() {
  const data = document.getElementById("data");
  return data ? JSON.parse(data.textContent) : null;
}

/**
 * Send a request and return the answer.
 *
 * @param {string} address
 * @param {Object|null} body  null: GET
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
async function call(address, body, signal) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  let response;
  try {
    response = await fetch(address, body === null ? {} : post);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server does not answer. Start it again with `seq2seq-attn explore`.");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer?.error)
    throw new RequestError(answer?.error ?? `The server answered with status ${response.status}.`);
  if (answer === null) throw new RequestError("The server's answer is not JSON.");
  return answer;
}

/** @returns {Promise<Models>} */
export function fetchModels() {
  return call("api/models", null);
}

/**
 * Return the look of a request, as the server sends it.
 *
 * @param {LookRequest} request
 * @param {AbortSignal} [signal]
 * @returns {Promise<Object>}
 */
export function fetchLook(request, signal) {
  return call("api/look", request, signal);
}
