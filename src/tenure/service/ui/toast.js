// What was done, said once.

import { byId } from "./dom.js";

const SHOWN_MS = 12_000;
let hiding = null;

/** Say it, to screen readers, too. */
export function say(text) {
  byId("toast").textContent = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => (byId("toast").textContent = ""), SHOWN_MS);
}
