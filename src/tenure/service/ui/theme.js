// Light, dark, or as the system has it. Not a module: it runs before the page is painted, so that nothing flashes.
"use strict";
(() => {
  const KEY = "tenure-theme";
  const NEXT = { system: "light", light: "dark", dark: "system" };
  const root = document.documentElement;

  function stored() {
    try {
      const theme = localStorage.getItem(KEY);
      return theme in NEXT ? theme : "system";
    } catch {
      return "system"; // storage may be forbidden; the switch works all the same, for this page
    }
  }

  function show(theme) {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  }

  function turn() {
    const theme = NEXT[root.dataset.theme];
    show(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // as above
    }
  }

  show(stored());
  document.addEventListener("DOMContentLoaded", () => {
    show(root.dataset.theme);
    document.getElementById("theme").addEventListener("click", turn);
  });
})();
