// The audit trail: who was forced out, by whom, and why; the newest first.

import { get } from "./api.js";
import { badge, nameLink, person, said } from "./cells.js";
import { button, el, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { onChange, watch } from "./live.js";
import { oneAtATime } from "./pace.js";
import { counted, moment } from "./words.js";

const LIMIT = 1000; // the service keeps no more
const COLUMNS = [
  { title: "When", cell: (record) => moment(record.at), kind: "mono" },
  { title: "Name", cell: (record) => nameLink(record.name) },
  { title: "Forced out", cell: person },
  { title: "Was", cell: (record) => badge(record.wasHolding ? "holding" : "waiting", record.wasHolding ? "bad" : "plain") },
  { title: "By", cell: (record) => said(record.actor) },
  { title: "Reason", cell: (record) => said(record.reason) },
];

const NONE = ["Nobody was forced out yet.", "Who is, is written down here, in the same transaction."];

/** Returns {close}. */
export function openAudit(main) {
  const summary = el("p", { class: "summary" });
  const notice = el("div", { class: "notice", role: "alert" }, el("p", {}, "Looking…"));
  const grid = new Grid({ label: "Audit trail", columns: COLUMNS, key: ({ name, token, at }) => `${token} ${at} ${name}` });
  grid.element.hidden = true;

  const look = oneAtATime(async () => {
    try {
      const { records } = await get(`v1/audit?limit=${LIMIT}`);
      grid.show(records);
      grid.element.hidden = records.length === 0;
      summary.textContent = counted(records.length, "record");
      notice.hidden = records.length > 0;
      if (!records.length) refill(notice, NONE.map((text) => el("p", {}, text)));
    } catch (error) {
      notice.hidden = false;
      refill(notice, el("p", {}, `The audit trail could not be read: ${error.message}`), button("Try again", look));
    }
  });

  refill(main, el("div", { class: "heading" }, el("h1", { tabindex: "-1" }, "Audit"), summary), notice, grid.element);
  watch("");
  look();
  return { close: onChange(look) }; // whoever is forced out leaves a line, and that is told
}
