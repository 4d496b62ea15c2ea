// A list of lines: below a prefix, filtered by what is typed, kept up as they change. Locks and elections are two of it.

import { el, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { fresh, lines, onChange, state, watch } from "./live.js";
import { debounced } from "./pace.js";
import { count, counted, visible } from "./words.js";

const TYPING_MS = 350;

/** `list`: {hash, title, noun, columns, sorted, keep(line), choices, empty}. Returns {close}. */
export function openList(main, list, query) {
  const kept = (list.kept ??= { filter: "", choice: list.choices[0].title }); // as it was left
  const prefix = field("Prefix", "prefix", query.get("prefix") ?? "", "names that begin so");
  const filter = field("Filter", "filter", kept.filter, "name, holder or value", "/");
  const choices = list.choices.map((choice) => choiceOf(choice, kept));
  const summary = el("p", { class: "summary" });
  const notice = el("div", { class: "notice", hidden: true });
  const grid = new Grid({ label: list.title, columns: list.columns, key: (line) => line.name, sorted: list.sorted });

  const show = (anew = false) => {
    const all = [...lines.values()].filter(list.keep);
    const choice = list.choices.find(({ title }) => title === kept.choice);
    const shown = all.filter(choice.keep).filter(matching(kept.filter));
    grid.show(shown, anew);
    grid.element.hidden = shown.length === 0;
    summary.textContent = state.known ? summed(list, all, shown) : "";
    const missing = shown.length ? null : missed(list, all.length > 0, prefix.input.value);
    notice.hidden = missing === null;
    if (missing) refill(notice, missing.map((text) => el("p", {}, text)));
  };

  filter.input.addEventListener("input", () => {
    kept.filter = filter.input.value;
    show(true);
  });
  prefix.input.addEventListener("input", debounced(() => {
    const wanted = prefix.input.value;
    history.replaceState(null, "", wanted ? `${list.hash}?prefix=${encodeURIComponent(wanted)}` : list.hash);
    watch(wanted);
  }, TYPING_MS));
  for (const { input } of choices) {
    input.addEventListener("change", () => {
      kept.choice = input.value;
      show(true);
    });
  }

  const several = choices.length > 1;
  const shows = several && el("fieldset", { class: "choices" }, el("legend", {}, "Show"), choices.map(({ label }) => label));
  const tools = el("div", { class: "tools", role: "search" }, filter.label, prefix.label, shows);
  refill(main, el("div", { class: "heading" }, el("h1", { tabindex: "-1" }, list.title), summary), tools, notice, grid.element);
  watch(prefix.input.value);
  show();
  return { close: onChange(() => show()) };
}

function field(title, name, value, hint, key = null) {
  const input = el("input", {
    type: "search", name, id: name, placeholder: hint, autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": key,
  });
  input.value = value;
  return { input, label: el("label", { class: "field" }, el("span", {}, title), input) };
}

function choiceOf({ title }, kept) {
  const input = el("input", { type: "radio", name: "choice", value: title, checked: title === kept.choice });
  return { input, label: el("label", {}, input, el("span", {}, title)) };
}

function matching(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return () => true;
  const has = (said) => said !== null && (said.toLowerCase().includes(wanted) || visible(said).toLowerCase().includes(wanted));
  return (line) => has(line.name) || line.holders.some((ticket) => has(ticket.ownerId) || has(ticket.value));
}

function summed(list, all, shown) {
  const contended = all.filter((line) => line.waiterCount > 0).length;
  const some = shown.length < all.length ? `${count(shown.length)} of ` : "";
  return `${some}${counted(all.length, list.noun)}, ${count(contended)} waited for`;
}

function missed(list, hidden, prefix) {
  if (!state.known) {
    if (state.problem === null) return ["Looking…"];
    return ["Nothing is known yet: the service or its store could not be asked. It is tried again by itself."];
  }
  if (hidden) return ["None matches the filter. Clear it to see all."];
  const where = prefix ? ` below the prefix "${visible(prefix)}"` : "";
  return [`${list.empty.what}${where}${fresh() ? "" : ", as far as is known"}.`, list.empty.why];
}
