// One line in full: who holds it, who waits, in order; who leads; how the last holds ended.

import { get, segment } from "./api.js";
import { badge, growing, kindOf, said, tokenOf } from "./cells.js";
import { secondsSince, stamp } from "./clock.js";
import { button, el, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { fresh, onChange, watch } from "./live.js";
import { debounced, oneAtATime } from "./pace.js";
import { forceOut } from "./release.js";
import { ticking } from "./tick.js";
import { count, counted, duration, moment, owner, precise, reasonOf, visible } from "./words.js";

const LOOK_MS = 5_000; // an election is looked at again by itself: whether an answer is certain changes without a change
const CERTAIN_SECONDS = 12;
const WRITTEN_MS = 3_000; // by then whoever held it has written down how that ended, and nothing tells of it

const NO_JOURNAL = "No hold was written down. Clients keep a journal where they are told to: journal=True, or ?journal=1.";

/** Returns {close}. */
export function openLine(main, name) {
  const body = el("div");
  const trouble = el("div", { class: "notice bad", role: "alert", hidden: true });
  const looked = el("p", { class: "summary" });
  const heading = el("h1", { tabindex: "-1" }, el("bdi", {}, visible(name)));
  const parts = partsOf(name);
  let closed = false;
  let election = false;

  const look = oneAtATime(async () => {
    const asked = stamp();
    try {
      const facts = await factsOf(name);
      if (closed) return;
      election = facts.election !== null;
      refill(looked, `${kindOf(facts.line)}, seen `, ticking(() => `${duration(secondsSince(asked))} ago`));
      if (!body.firstChild) refill(body, parts.elements);
      parts.show({ ...facts, seen: asked });
      trouble.hidden = true;
    } catch (error) {
      trouble.hidden = false;
      refill(trouble, el("p", {}, `This name could not be looked at: ${error.message}`), button("Try again", look));
    }
  });

  const back = el("a", { class: "back", href: "#/locks", "data-back": true }, "All locks");
  const again = button("Look again", look, { class: "quiet" });
  refill(main, back, el("div", { class: "heading" }, heading, looked, again), trouble, body);
  watch(name);
  const lookOnceMore = debounced(look, WRITTEN_MS);
  const forget = onChange((names) => {
    if (!names.has(name)) return;
    look();
    lookOnceMore();
  });
  const looking = setInterval(() => election && look(), LOOK_MS);
  look();
  return {
    close: () => {
      closed = true;
      clearInterval(looking);
      forget();
    },
  };
}

async function factsOf(name) {
  const path = `v1/resources/${segment(name)}`;
  const [why, history] = await Promise.all([get(`${path}/why`), get(`${path}/history`)]);
  const election = why.line.kind === "election" ? await electionOf(name) : null;
  return { ...why, history: history.holds, election };
}

// It needs a scope of its own: a token without it still sees all the rest.
async function electionOf(name) {
  try {
    return await get(`v1/elections/${segment(name)}`);
  } catch (error) {
    return { trouble: error.message };
  }
}

function partsOf(name) {
  const leading = el("section", { class: "card", "aria-label": "Leader" });
  const holders = ticketsOf("Holders", name);
  const waiters = ticketsOf("Waiting, the next one first", name);
  const past = el("section", { class: "card", "aria-label": "How the last hold ended" });
  const history = new Grid({ label: "Last holds", columns: PAST, key: (hold) => `${hold.token} ${hold.acquiredAt}` });
  const noHistory = el("p", { class: "note" }, NO_JOURNAL);

  const show = (facts) => {
    showLeader(leading, facts);
    holders.show(facts.line.holders, facts.line.holderCount, facts.seen, "Nobody holds it.");
    waiters.show(facts.line.waiters, facts.line.waiterCount, facts.seen, "Nobody waits.");
    showPast(past, facts);
    history.show(facts.history.toReversed());
    history.element.hidden = facts.history.length === 0;
    noHistory.hidden = facts.history.length > 0;
  };
  const journal = el("section", {}, el("h2", {}, "Last holds"), history.element, noHistory);
  return { elements: [leading, holders.element, waiters.element, past, journal], show };
}

function ticketsOf(title, name) {
  const grid = new Grid({ label: title, columns: columnsOf(name), key: ({ ticket }) => ticket.token });
  const nobody = el("p", { class: "note" });
  const heading = el("h2", {}, title);
  const show = (tickets, all, seen, none) => {
    heading.textContent = all > 1 ? `${title} (${count(all)})` : title;
    grid.show(tickets.map((ticket, index) => ({ ticket, seen, place: index + 1 })));
    grid.element.hidden = tickets.length === 0;
    nobody.textContent = tickets.length === 0 ? none : `${count(all - tickets.length)} more are not shown.`;
    nobody.hidden = tickets.length > 0 && all === tickets.length;
  };
  return { element: el("section", { class: "tickets" }, heading, grid.element, nobody), show };
}

function columnsOf(name) {
  return [
    { title: "Owner", cell: ({ ticket }) => el("bdi", { class: "who" }, owner(ticket)) },
    { title: "Token", cell: ({ ticket }) => ticket.token, kind: "mono" },
    { title: "As", cell: ({ ticket }) => mode(ticket), kind: "word" },
    { title: "In line", cell: ({ ticket, seen }) => growing(ticket.ageSeconds, seen), kind: "number" },
    { title: "Lease", cell: ({ ticket }) => lease(ticket) },
    { title: "Value", cell: ({ ticket }) => said(ticket.value) },
    {
      title: "",
      cell: ({ ticket }) =>
        button("Force out…", () => forceOut(name, ticket.token), {
          class: "danger small",
          "data-token": ticket.token,
          "aria-label": `Force out ${owner(ticket)}, token ${ticket.token}`,
        }),
      kind: "action",
    },
  ];
}

function mode(ticket) {
  if (ticket.mode === "seat") return counted(ticket.weight, "seat");
  return ticket.mode === "read" ? "reader" : ticket.mode;
}

// What is left was true when it was looked at, and a living owner renews it: so it is not counted down here.
function lease(ticket) {
  if (ticket.orphaned) return badge("none: nothing but you will end it", "bad");
  if (ticket.ttlSeconds === null) return "–";
  const left = ticket.leftSeconds === null ? "" : `, ${precise(ticket.leftSeconds)} left then`;
  return `${precise(ticket.ttlSeconds)}${left}`;
}

function showLeader(card, { election, seen }) {
  card.hidden = election === null;
  if (election === null) return;
  if (election.trouble) {
    refill(card, el("h2", {}, "Leader"), el("p", {}, `Who leads could not be asked: ${election.trouble}`));
    return;
  }
  const { leader, certain, ageSeconds, isCandidate, isLeader } = election;
  const who = leader === null ? "Nobody, as far as is known" : [said(leader.value), " ", tokenOf(leader)];
  const old = ageSeconds === null ? "" : `The store said so ${precise(Math.max(0.01, ageSeconds))} before it was told. `;
  const here = isLeader ? "This service leads." : isCandidate ? "This service is a candidate." : "";
  refill(card, el("h2", {}, "Leader"), el("p", { class: "large" }, who, " ", surety(certain, seen)), el("p", { class: "note" }, old + here));
}

// A yes is good for a moment only: it takes itself back when nobody has said it again.
function surety(certain, seen) {
  const sure = () => certain && fresh() && secondsSince(seen) <= CERTAIN_SECONDS;
  const text = () => (sure() ? "certain" : "not certain: do not act on it");
  return ticking(text, () => ({ class: "badge", "data-kind": sure() ? "good" : "busy" }));
}

function showPast(card, { last, forced }) {
  card.hidden = last === null && forced === null;
  const same = last !== null && last.token === forced?.token; // then the journal has said it all
  const endings = [last && lastly(last), !same && forced && forcing(forced)].filter(Boolean);
  refill(card, el("h2", {}, "How the last hold ended"), endings.map((text) => el("p", {}, text)));
}

function lastly(hold) {
  const lasted = hold.heldSeconds === null ? "an unknown time" : precise(hold.heldSeconds);
  const reason = hold.reason ? `: ${reasonOf(hold)}` : "";
  const derived = hold.derived ? ", as it seems" : "";
  return `${owner(hold)} (token ${hold.token}) acquired it at ${moment(hold.acquiredAt)}, after a wait of ` +
    `${precise(hold.waitedSeconds)}, and held it for ${lasted}; ${hold.ended}${derived}${reason}.`;
}

function forcing(record) {
  return `${owner(record)} (token ${record.token}) was forced out at ${moment(record.at)} by ${visible(record.actor)}: ` +
    `${visible(record.reason)}`;
}

const ENDINGS = { released: "good", closed: "good", expired: "bad", forced: "bad", removed: "bad" };
const PAST = [
  { title: "Owner", cell: (hold) => el("bdi", { class: "who" }, owner(hold)) },
  { title: "Token", cell: (hold) => hold.token, kind: "mono" },
  { title: "Acquired", cell: (hold) => moment(hold.acquiredAt) },
  { title: "Waited", cell: (hold) => precise(hold.waitedSeconds), kind: "number" },
  { title: "Held", cell: (hold) => precise(hold.heldSeconds), kind: "number" },
  { title: "Ended", cell: ending },
];

function ending(hold) {
  if (hold.ended === null) return badge("stands");
  const reason = hold.reason && el("bdi", {}, reasonOf(hold));
  return [badge(hold.derived ? `${hold.ended}, derived` : hold.ended, ENDINGS[hold.ended]), " ", reason || ""];
}
