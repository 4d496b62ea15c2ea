// The list of leaders. An election is a line whose holder shows a value.

import { growing, nameLink, person, said, waiting } from "./cells.js";

const leader = (line) => line.holders[0];

/** See list.js. */
export const elections = {
  hash: "#/elections",
  title: "Elections",
  noun: "election",
  columns: [
    { title: "Name", cell: (line) => nameLink(line.name), order: (line) => line.name },
    { title: "Leader", cell: (line) => said(leader(line)?.value), order: (line) => leader(line)?.value ?? "" },
    { title: "Owner", cell: (line) => (leader(line) ? person(leader(line)) : "–"), order: (line) => leader(line)?.ownerId ?? "" },
    {
      title: "In line",
      cell: (line) => growing(leader(line)?.ageSeconds ?? null, line.seen),
      order: (line) => leader(line)?.ageSeconds ?? null,
      falling: true,
      kind: "number",
    },
    { title: "Candidates", cell: waiting, order: (line) => line.waiterCount, falling: true, kind: "number" },
  ],
  sorted: { title: "Name", falling: false },
  keep: (line) => line.kind === "election",
  choices: [{ title: "all", keep: () => true }],
  empty: {
    what: "Nobody leads",
    why: "An election shows up here while its leader shows a value. One whose leader shows none is among the locks.",
  },
};
