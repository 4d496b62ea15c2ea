// Forcing somebody out: a dialog that says what will happen, and to whom, as the store has it at that moment.

import { get, post, segment } from "./api.js";
import { byId, el, refill } from "./dom.js";
import { onChange } from "./live.js";
import { oneAtATime } from "./pace.js";
import { say } from "./toast.js";
import { counted, duration, owner, visible } from "./words.js";

const GONE = "This ticket has left the line meanwhile: there is nobody to force out.";

/** Open the dialog for the ticket of this token. */
export function forceOut(name, token) {
  const dialog = byId("release-dialog");
  let sending = false;

  const look = oneAtATime(async () => {
    const effects = await effectsOf(name, token);
    if (dialog.open && !sending) show(effects);
  });
  const forget = onChange((names) => names.has(name) && look());

  prepare(name, token);
  dialog.onclose = () => {
    forget();
    giveBackFocus(token);
  };
  byId("release-cancel").onclick = () => dialog.close();
  byId("release-form").onsubmit = async (event) => {
    event.preventDefault();
    if (sending || byId("release-confirm").disabled) return;
    const filled = filledIn(token);
    if (filled === null) return;
    sending = byId("release-confirm").disabled = true;
    await send(name, filled);
    sending = byId("release-confirm").disabled = false;
  };
  dialog.showModal();
  byId("release-reason").focus();
  look();
}

// The row it was opened from may have gone.
function giveBackFocus(token) {
  (document.querySelector(`main [data-token="${token}"]`) ?? document.querySelector("main h1")).focus();
}

function prepare(name, token) {
  byId("release-title").textContent = `Force out token ${token} of ${visible(name)}?`;
  refill(byId("release-effects"), el("li", {}, "Looking who that is…"));
  byId("release-reason").value = byId("release-error").textContent = "";
  byId("release-confirm").textContent = "Force out";
  byId("release-confirm").disabled = true;
}

function show({ title, confirm, effects, possible }) {
  if (title) byId("release-title").textContent = title;
  if (confirm) byId("release-confirm").textContent = confirm;
  byId("release-confirm").disabled = !possible;
  refill(byId("release-effects"), effects.map((text) => el("li", {}, text)));
}

async function effectsOf(name, token) {
  try {
    const line = await get(`v1/resources/${segment(name)}`);
    const ticket = [...line.holders, ...line.waiters].find((one) => one.token === token);
    if (!ticket) return { effects: [GONE], possible: false };
    return {
      title: `Force ${owner(ticket)} out of ${visible(name)}?`,
      confirm: `Force out ${owner(ticket)}`,
      effects: [taken(line, ticket), lost(ticket), next(line, ticket)].filter((text) => text !== null),
      possible: true,
    };
  } catch (error) {
    return { effects: [`Nothing can be said about it: ${error.message} Nothing was done.`], possible: false };
  }
}

function taken(line, ticket) {
  const orphaned = ticket.orphaned ? " It hangs on no lease: nothing else will end it." : "";
  const since = ticket.ageSeconds === null ? "" : ` It has stood there for ${duration(ticket.ageSeconds)}.`;
  return `The ticket of ${owner(ticket)} (token ${ticket.token}) is removed from ${visible(line.name)}.${since}${orphaned}`;
}

function lost(ticket) {
  const who = owner(ticket);
  if (!ticket.holds) return `${who} waits, and loses its place; it hears of that once its turn would have come. Nobody who holds is touched.`;
  return `${who} loses the hold, and is told. It may be at work until it hears: only a guard that checks tokens keeps it ` +
    "from the resource until then.";
}

function next(line, ticket) {
  if (!ticket.holds) return null;
  const first = line.waiters[0];
  if (!first) return line.holderCount > 1 ? "Nobody waits; the others go on holding." : "Nobody waits: it will be free.";
  const who = `${owner(first)} (token ${first.token})`;
  const rest = line.waiterCount > 1 ? `, then ${counted(line.waiterCount - 1, "other")}` : "";
  if (line.holderCount > 1 || ticket.mode === "seat") return `Next in line: ${who}${rest}; let in as soon as there is room.`;
  return `Next in line: ${who}${rest}. It gets the hold at once.`;
}

function filledIn(token) {
  const [reason, actor] = ["release-reason", "release-actor"].map((id) => byId(id).value.trim());
  byId("release-error").textContent = reason ? "" : "Say why: whoever asks later finds it in the audit trail.";
  if (!reason) byId("release-reason").focus();
  return reason ? { token, reason, ...(actor && { actor }) } : null;
}

// An answer that was lost is asked for once more: the same request finds its own record, and forces out nobody else.
async function sentTwice(path, body) {
  try {
    return await post(path, body);
  } catch (error) {
    if (error.code !== "not-reached") throw error;
    return post(path, body);
  }
}

async function send(name, body) {
  try {
    const record = await sentTwice(`v1/resources/${segment(name)}/release`, body);
    byId("release-dialog").close();
    say(`${owner(record)} (token ${record.token}) was forced out of ${visible(name)}. It is in the audit trail.`);
  } catch (error) {
    const unknown = error.happened === "unknown" ? " It may have been done: send it again, it is done once at most." : "";
    byId("release-error").textContent = `${error.message}${unknown}`;
  }
}
