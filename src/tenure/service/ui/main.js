// The page: which view is shown, what the keys do, and the clock that lets ages grow.
//
// To read it: live.js is what is known and how old that is; api.js asks the service; list.js (locks.js, elections.js),
// line.js and audit.js are the views; release.js forces somebody out; grid.js is the table that all of them use.

import { openAudit } from "./audit.js";
import { byId } from "./dom.js";
import { elections } from "./elections.js";
import { showHeard } from "./heard.js";
import { moveByKey } from "./keys.js";
import { openLine } from "./line.js";
import { openList } from "./list.js";
import { onChange } from "./live.js";
import { locks } from "./locks.js";
import { startTicking } from "./tick.js";
import { offerToForget } from "./token.js";
import { visible } from "./words.js";

const main = byId("main");
let view = { close() {} };

function open() {
  const [path, query] = location.hash.slice(1).split("?");
  const [, what, name] = path.split("/");
  view.close();
  if (what === "line" && name) view = show(visible(nameIn(name)), () => openLine(main, nameIn(name)));
  else if (what === "elections") view = show("Elections", () => openList(main, elections, new URLSearchParams(query)));
  else if (what === "audit") view = show("Audit", () => openAudit(main));
  else view = show("Locks", () => openList(main, locks, new URLSearchParams(query)));
  for (const link of document.querySelectorAll("header nav a")) {
    const here = link.hash === `#/${what}` || (link.hash === "#/locks" && !["elections", "audit"].includes(what));
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function show(title, opened) {
  document.title = `${title} · tenure`;
  return opened();
}

function nameIn(encoded) {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded; // somebody wrote it by hand
  }
}

window.addEventListener("hashchange", () => {
  open();
  main.querySelector("h1")?.focus();
  window.scrollTo(0, 0);
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash says which view it is
  main.focus();
});
document.addEventListener("keydown", moveByKey);
onChange(showHeard);
startTicking(showHeard);
offerToForget();
open();
