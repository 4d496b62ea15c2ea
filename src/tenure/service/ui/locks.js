// The list of all that is in use.

import { growing, kindOf, nameLink, person, waiting } from "./cells.js";
import { el } from "./dom.js";
import { count } from "./words.js";

const oldest = (line) => Math.max(-1, ...line.holders.map((ticket) => ticket.ageSeconds ?? -1));

/** See list.js. */
export const locks = {
  hash: "#/locks",
  title: "Locks",
  noun: "lock",
  columns: [
    { title: "Name", cell: (line) => nameLink(line.name), order: (line) => line.name },
    { title: "Kind", cell: kindOf, order: (line) => line.kind, kind: "word" },
    { title: "Holder", cell: holders, order: (line) => line.holders[0]?.ownerId ?? "" },
    { title: "In line", cell: age, order: oldest, falling: true, kind: "number" },
    { title: "Waiting", cell: waiting, order: (line) => line.waiterCount, falling: true, kind: "number" },
    {
      title: "Longest wait",
      cell: (line) => growing(line.longestWaitSeconds, line.seen),
      order: (line) => line.longestWaitSeconds,
      falling: true,
      kind: "number",
    },
  ],
  sorted: { title: "Name", falling: false },
  keep: () => true,
  choices: [
    { title: "all", keep: () => true },
    { title: "waited for", keep: (line) => line.waiterCount > 0 },
    { title: "without a lease", keep: (line) => line.holders.some((ticket) => ticket.orphaned) },
  ],
  empty: {
    what: "No lock is in use",
    why: "A name shows up here as soon as somebody holds it, and goes when nobody does.",
  },
};

function holders(line) {
  if (line.holderCount === 0) return "–";
  const more = line.holderCount - 1;
  return [person(line.holders[0]), more > 0 && el("small", { class: "more" }, `+${count(more)} more`)];
}

function age(line) {
  return line.holders.length ? growing(oldest(line) < 0 ? null : oldest(line), line.seen) : "–";
}
