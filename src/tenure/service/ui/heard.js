// The honest sign: is what is shown as good as now, and if not, since when and why.

import { secondsSince } from "./clock.js";
import { button, byId, refill } from "./dom.js";
import { fresh, hurry, state } from "./live.js";
import { duration, moment } from "./words.js";

let alarmed = "";

/** Show it as it is at this moment. */
export function showHeard() {
  const [kind, text] = judged();
  byId("heard").dataset.state = document.body.dataset.state = kind;
  if (byId("heard-text").textContent !== text) byId("heard-text").textContent = text;
  showAlarm(kind === "live" || kind === "connecting" ? "" : alarm());
}

function judged() {
  if (state.heard === null) return state.problem === null ? ["connecting", "Connecting"] : ["lost", "Nothing heard yet"];
  const ago = duration(secondsSince(state.heard));
  return fresh() ? ["live", `Live, heard ${ago} ago`] : ["old", `Not live, last heard ${ago} ago`];
}

// Without the seconds that pass: a screen reader says it again at every change.
function alarm() {
  const since = state.heard && moment(new Date(state.heard.wall).toISOString());
  return (since ? `What you see is old: it is from ${since}. ` : "") + (state.problem?.message ?? "Nothing has been heard from the service since.");
}

function showAlarm(text) {
  if (text === alarmed) return;
  alarmed = text;
  byId("alarm").hidden = text === "";
  if (text) refill(byId("alarm"), text, button("Try now", hurry));
}
