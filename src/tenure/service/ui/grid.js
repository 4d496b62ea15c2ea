// A table: rows by key, sorted by a column, a page at a time. What shows the same as before is the same element as before:
// so it keeps the focus, and a click that has begun.

import { button, el, refill } from "./dom.js";
import { count } from "./words.js";

const PAGE = 100;

/**
 * `columns`: {title, cell(item), order(item)?, falling?, kind?}; one with `order` can be sorted by, `falling` says that
 * its largest come first. `key(item)` tells items apart.
 */
export class Grid {
  #columns;
  #key;
  #sorting;
  #page = 0;
  #items = [];
  #rows = new Map(); // by key: {item, row}
  #body = el("tbody");
  #pager = el("nav", { class: "pager", "aria-label": "Pages", hidden: true });
  #headers;

  constructor({ label, columns, key, sorted = null }) {
    this.#columns = columns;
    this.#key = key;
    this.#sorting = sorted;
    this.#headers = columns.map((column) => this.#header(column));
    const head = el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, this.#headers));
    this.#body.setAttribute("role", "rowgroup");
    const table = el("table", { "aria-label": label, role: "table" }, head, this.#body); // narrow pages change `display`
    this.element = el("div", { class: "grid" }, table, this.#pager);
  }

  /** Show these, from the first page where `anew`. */
  show(items, anew = false) {
    this.#items = items;
    if (anew) this.#page = 0;
    this.#render();
  }

  #header(column) {
    const sorts = column.order && this.#sorting !== null;
    const text = sorts ? button(column.title, () => this.#sortBy(column)) : column.title;
    return el("th", { scope: "col", role: "columnheader", "data-kind": column.kind ?? null }, text);
  }

  #sortBy(column) {
    const again = this.#sorting.title === column.title;
    this.#sorting = { title: column.title, falling: again ? !this.#sorting.falling : Boolean(column.falling) };
    this.#page = 0;
    this.#render();
  }

  #render() {
    const pages = Math.max(1, Math.ceil(this.#items.length / PAGE));
    this.#page = Math.min(this.#page, pages - 1);
    this.#fill(this.#sorted().slice(this.#page * PAGE, (this.#page + 1) * PAGE));
    this.#showPager(pages);
    this.#headers.forEach((header, index) => this.#showSorting(header, this.#columns[index]));
  }

  #sorted() {
    const column = this.#columns.find((one) => one.title === this.#sorting?.title);
    if (!column) return this.#items;
    const sign = this.#sorting.falling ? -1 : 1;
    const placed = this.#items.map((item) => [column.order(item), this.#key(item), item]);
    placed.sort((a, b) => sign * compare(a[0], b[0]) || compare(a[1], b[1]));
    return placed.map(([, , item]) => item);
  }

  #fill(items) {
    const focused = this.#body.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && placeOf(focused);
    const before = this.#rows;
    this.#rows = new Map(items.map((item) => [this.#key(item), this.#row(item, before.get(this.#key(item)))]));
    [...this.#rows.values()].forEach(({ row }, index) => {
      if (this.#body.children[index] !== row) this.#body.insertBefore(row, this.#body.children[index] ?? null);
    });
    while (this.#body.children.length > items.length) this.#body.lastChild.remove();
    if (place && document.activeElement !== focused) this.#focus(place);
  }

  #row(item, before) {
    if (before?.item === item) return before;
    const cells = this.#columns.map((column) =>
      el("td", { role: "cell", "data-label": column.title, "data-kind": column.kind ?? null }, column.cell(item)),
    );
    if (before) return { item, row: refreshed(before.row, cells) };
    const row = el("tr", { role: "row" }, cells);
    row.dataset.key = this.#key(item);
    return { item, row };
  }

  // What had the focus was built anew, or moved: its successor gets it, or the row that stands there now.
  #focus({ key, index, nth }) {
    const row = this.#rows.get(key)?.row ?? this.#body.children[Math.min(index, this.#body.children.length - 1)];
    const within = row?.querySelectorAll("a, button") ?? [];
    (within[nth] ?? within[0])?.focus({ preventScroll: true });
  }

  #showPager(pages) {
    this.#pager.hidden = pages === 1;
    if (pages === 1) return;
    const last = Math.min(this.#items.length, (this.#page + 1) * PAGE);
    const turn = (step) => () => {
      this.#page += step;
      this.#render();
      this.element.scrollIntoView({ block: "start" });
    };
    const focused = [...this.#pager.children].indexOf(document.activeElement);
    refill(
      this.#pager,
      button("Previous", turn(-1), { disabled: this.#page === 0 }),
      el("span", {}, `${count(this.#page * PAGE + 1)}–${count(last)} of ${count(this.#items.length)}`),
      button("Next", turn(1), { disabled: this.#page === pages - 1 }),
    );
    if (focused >= 0) this.#refocus(focused);
  }

  #refocus(index) {
    const wanted = this.#pager.children[index];
    (wanted.disabled ? this.#pager.querySelector("button:enabled") : wanted)?.focus();
  }

  #showSorting(header, column) {
    if (column.title !== this.#sorting?.title) header.removeAttribute("aria-sort");
    else header.setAttribute("aria-sort", this.#sorting.falling ? "descending" : "ascending");
  }
}

function refreshed(row, cells) {
  cells.forEach((cell, index) => {
    if (!cell.isEqualNode(row.children[index])) row.children[index].replaceWith(cell);
  });
  return row;
}

function placeOf(focused) {
  const row = focused.closest("tr");
  const nth = [...row.querySelectorAll("a, button")].indexOf(focused);
  return { key: row.dataset.key, index: [...row.parentElement.children].indexOf(row), nth };
}

// Code units, not a language's order: ten thousand names are sorted in a moment.
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? -1 : 1;
  return a < b ? -1 : 1;
}
