// What is known of the lines below one prefix, kept up by the service's stream of events; and how old that is.
//
// The stream lives as long as the service does, also while the store is away. So, while it is open, the store is asked
// every few seconds for a line: only its answers, and events, count as having been heard. Without both it is not fresh.

import { get, Refusal, segment, send } from "./api.js";
import { secondsSince, stamp } from "./clock.js";
import { readEvents } from "./events.js";

const LATE_SECONDS = 15; // what was heard longer ago than that is old
const PROBE_MS = 5_000;
const SILENT_MS = 25_000; // the service gives a sign of life every 10 s
const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];
const TELL_MS = 200;
const PROBED = segment("tenure-ui"); // whether anybody stands there does not matter

const listeners = new Set(); // functions that are called after changes
const pauses = new Set(); // functions that end the pauses that are under way
let following = new AbortController();
let prefix = null;
let changed = new Set(); // names that changed since the listeners were called last
let telling = null;

/** By name; each with `seen`, when its facts came. */
export const lines = new Map();

/** `known`: have lines come at all? `heard`: when the store was heard of last. `problem`: why it is not, a Refusal. */
export const state = { known: false, connected: false, heard: null, problem: null };

/** Is what is known as good as now? */
export function fresh() {
  return state.known && state.connected && state.problem === null && secondsSince(state.heard) <= LATE_SECONDS;
}

/** A duration that was `seconds` when `seen`, as of now; as of when the store was heard of last, where that is old. */
export function grown(seconds, seen) {
  if (seconds === null) return null;
  const since = secondsSince(seen) - (fresh() || state.heard === null ? 0 : secondsSince(state.heard));
  return seconds + Math.max(0, since);
}

/** Call `tell(names)` after changes, a few times a second at most. What is returned ends that. */
export function onChange(tell) {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

/** Follow the lines whose names begin with `wanted`. */
export function watch(wanted) {
  if (wanted === prefix) return;
  prefix = wanted;
  following.abort();
  following = new AbortController();
  forget();
  follow(wanted, following);
}

/** Do not wait for the next try. */
export function hurry() {
  pauses.forEach((end) => end());
}

function forget() {
  Object.assign(state, { known: false, connected: false, heard: null, problem: null });
  replace([]);
}

async function follow(wanted, control) {
  for (let failures = 0; !control.signal.aborted; failures += 1) { // until something else is followed
    const before = state.heard;
    try {
      await followOnce(wanted, control.signal);
    } catch (error) {
      if (control.signal.aborted) return;
      state.problem = error instanceof Refusal ? error : broken();
    }
    if (control.signal.aborted) return;
    state.connected = false;
    if (state.heard !== before) failures = 0;
    tellSoon();
    await pause(PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]);
  }
}

async function followOnce(wanted, signal) {
  const once = new AbortController();
  const ended = AbortSignal.any([signal, once.signal]);
  let silent = null;
  const onHeard = () => {
    clearTimeout(silent);
    silent = setTimeout(() => once.abort(), SILENT_MS);
  };
  try {
    onHeard();
    const response = await send(`v1/events?prefix=${encodeURIComponent(wanted)}`, { signal: ended });
    onHeard();
    probe(ended);
    await readEvents(response, { onHeard, onEvent: take });
    throw broken();
  } finally {
    clearTimeout(silent);
    once.abort();
  }
}

async function probe(signal) {
  while (!signal.aborted) { // as long as the stream is open
    await pause(PROBE_MS);
    if (signal.aborted || !state.connected) continue;
    const asked = stamp();
    try {
      await get(`v1/resources/${PROBED}`);
      if (!signal.aborted) heard(asked);
    } catch (error) {
      if (!signal.aborted) state.problem = error;
    }
    if (!signal.aborted) tellSoon();
  }
}

function take(event, data) {
  if (event === "lines") replace(data.lines);
  else if (event === "line") put(data);
  else if (event === "gone") drop(data.name);
  state.known = state.connected = true;
  heard(stamp());
  tellSoon();
}

function heard(at) {
  state.heard = at;
  state.problem = null;
}

function replace(all) {
  for (const name of lines.keys()) changed.add(name);
  lines.clear();
  all.forEach(put);
  tellSoon();
}

function put(line) {
  lines.set(line.name, { ...line, seen: stamp() });
  changed.add(line.name);
}

function drop(name) {
  lines.delete(name);
  changed.add(name);
}

function broken() {
  return new Refusal("not-reached", "The connection to the service broke. Is it up, and is there a way to it from here?");
}

function tellSoon() {
  telling ??= setTimeout(() => {
    const names = changed;
    changed = new Set();
    telling = null;
    listeners.forEach((tell) => tell(names));
  }, state.known ? TELL_MS : 0);
}

function pause(milliseconds) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      pauses.delete(end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    pauses.add(end);
  });
}

window.addEventListener("online", hurry);
document.addEventListener("visibilitychange", () => document.hidden || hurry());
