// The keys: / to the filter, up and down through the rows, Escape back. Everything can be reached with Tab as well.

/** What a key does, if it does anything. */
export function moveByKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing) to(document.getElementById("filter"), event);
  else if (event.key === "ArrowDown") to(rowFrom(event.target, 1), event);
  else if (event.key === "ArrowUp") to(rowFrom(event.target, -1), event);
  else if (event.key === "Escape" && typing) leave(event.target);
  else if (event.key === "Escape") document.querySelector("[data-back]")?.click();
}

function to(element, event) {
  if (!element) return;
  event.preventDefault();
  element.focus();
  element.select?.();
}

// The same link or button one row on; from the filter, or from nowhere, the first row.
function rowFrom(from, step) {
  if (from.type === "radio") return null; // the keys choose there
  const row = from.closest("main tbody tr");
  if (!row) return step > 0 && (from === document.body || from.closest("main")) ? focusable(firstRow())[0] : null;
  const nth = focusable(row).indexOf(from);
  const target = step > 0 ? row.nextElementSibling : row.previousElementSibling;
  return target ? (focusable(target)[nth] ?? focusable(target)[0]) : step < 0 ? document.getElementById("filter") : null;
}

function firstRow() {
  return [...document.querySelectorAll("main tbody tr")].find((row) => row.checkVisibility() && focusable(row).length);
}

function focusable(row) {
  return row ? [...row.querySelectorAll("a, button")] : [];
}

function leave(field) {
  field.value = "";
  field.dispatchEvent(new Event("input"));
  field.blur();
}
