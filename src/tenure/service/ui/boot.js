// A page of which a part did not come, as when the network changed meanwhile, would show nothing for ever: it says so, and
// loads itself again. Not a module: it has to be there before those parts.
"use strict";
(() => {
  const AGAIN_MS = 2_000;

  window.addEventListener("error", ({ target }) => {
    if (!(target instanceof HTMLScriptElement || target instanceof HTMLLinkElement)) return; // what went wrong was no loading
    const text = document.getElementById("heard-text");
    if (text) text.textContent = "A part of this page did not come: loading it again";
    setTimeout(() => location.reload(), AGAIN_MS);
  }, true);
})();
