// What stands in cells: names, people, tokens, durations, badges.

import { el } from "./dom.js";
import { grown } from "./live.js";
import { ticking } from "./tick.js";
import { count, duration, owner, visible } from "./words.js";

const SHOWN_MAX = 400;

/** A name that leads to its line. */
export function nameLink(name) {
  return el("a", { class: "name", href: `#/line/${encodeURIComponent(name)}` }, el("bdi", {}, visible(name)));
}

/** Who stands there, and by which token. */
export function person(ticket) {
  return el("span", { class: "person" }, el("bdi", {}, owner(ticket)), " ", tokenOf(ticket), ticket.orphaned && orphan());
}

/** The fencing token, small. */
export function tokenOf(facts) {
  return el("small", { class: "token" }, `token ${facts.token}`);
}

/** A few words in a box. */
export function badge(text, kind = "plain") {
  return el("span", { class: "badge", "data-kind": kind }, text);
}

/** A text of somebody else's: a value, a reason. The store takes 64 KiB of it; nobody reads them in a table. */
export function said(text) {
  if (!text) return "–";
  const cut = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}… (${count(text.length)} characters)` : text;
  return el("bdi", {}, visible(cut));
}

/** What a line is used as, with a semaphore's seats. */
export function kindOf(line) {
  if (line.kind === null) return "not in use";
  if (line.kind !== "semaphore") return line.kind;
  const taken = line.holders.reduce((sum, ticket) => sum + ticket.weight, 0);
  const atLeast = line.holderCount > line.holders.length ? "≥ " : "";
  return `semaphore ${atLeast}${count(taken)}/${count(line.slots)}`;
}

/** A duration that grows while it is looked at. */
export function growing(seconds, seen) {
  return seconds === null ? "–" : ticking(() => duration(grown(seconds, seen)));
}

/** How many wait. */
export function waiting(line) {
  return line.waiterCount === 0 ? "–" : badge(count(line.waiterCount), "busy");
}

function orphan() {
  return badge("no lease", "bad");
}
