// Requests to the service this page came from. What goes wrong is a Refusal, with a sentence on what to do.

import * as token from "./token.js";

const BASE = new URL("../", document.baseURI); // the page may stand below a proxy's path
const NOT_REACHED = "The service does not answer. Is it up, and is there a way to it from here?";
const REQUEST_MS = 15_000;

/** What was asked for was not got. */
export class Refusal extends Error {
  constructor(code, detail, happened = "unknown") {
    super(detail);
    this.code = code;
    this.happened = happened;
  }
}

/** The JSON at this path. Throws Refusal. */
export async function get(path) {
  return read(await send(path, { signal: AbortSignal.timeout(REQUEST_MS) }));
}

/** The answer to `body`, sent once. Throws Refusal. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(REQUEST_MS) };
  return read(await send(path, options));
}

/** The response at this path, its body unread. Throws Refusal; where there is a token to ask for, it is asked for. */
export async function send(path, options = {}) {
  for (;;) { // ends with an answer that is no question for a token
    const used = token.current();
    const response = await attempt(path, options, used);
    if (response.ok) return response;
    const refusal = await refused(response);
    if (response.status !== 401) throw refusal;
    await token.ask(used, refusal.message);
    if (options.signal?.aborted) throw refusal;
  }
}

/** A name as a segment of a path. Throws Refusal for the two that no browser can ask for. */
export function segment(name) {
  if (name === "." || name === "..") { // steps in a path to every browser, however they are encoded
    throw new Refusal("not-reached", `No browser can ask for the name "${name}": look at it with "tenure show".`);
  }
  return encodeURIComponent(name);
}

async function attempt(path, options, used) {
  const headers = used === null ? options.headers : { ...options.headers, Authorization: `Bearer ${used}` };
  try {
    return await fetch(new URL(path, BASE), { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch {
    throw new Refusal("not-reached", NOT_REACHED);
  }
}

async function read(response) {
  try {
    return await response.json();
  } catch {
    throw new Refusal("not-reached", NOT_REACHED);
  }
}

async function refused(response) {
  try {
    const problem = await response.json();
    return new Refusal(problem.code, problem.detail || problem.title, problem.happened);
  } catch { // not ours: a proxy's page
    return new Refusal("not-reached", `Something between here and the service answers with ${response.status}.`);
  }
}
