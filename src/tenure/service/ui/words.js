// Facts in words: names, durations, times, numbers.

const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const COUNT = new Intl.NumberFormat("en");

/** What somebody else wrote, with all that can't be seen made visible: it can't pass for another name. */
export function visible(text) {
  return text.replace(UNSEEN, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

/** Who stands there. */
export function owner(ticket) {
  return ticket.ownerId === null ? "a stranger" : visible(ticket.ownerId);
}

/** Why a hold ended: its journal says "forced: " before what the audit record says. */
export function reasonOf(hold) {
  return visible(hold.reason.replace(/^forced: /, ""));
}

/** 5 s, 5m 43s, 2h 05m, 3d 4h. */
export function duration(seconds) {
  if (seconds === null) return "–";
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${count(Math.floor(whole / 86400))}d ${Math.floor((whole % 86400) / 3600)}h`;
}

/** The same for what is over in a moment: 0.05 s. */
export function precise(seconds) {
  if (seconds === null) return "–";
  return seconds < 10 ? `${seconds.toFixed(seconds < 1 ? 2 : 1)} s` : duration(seconds);
}

/** An RFC 3339 time, as the clock of whoever looks shows it. */
export function moment(text) {
  if (text === null) return "–";
  const at = new Date(text);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** 10,000 */
export function count(number) {
  return COUNT.format(number);
}

/** 1 lock, 2 locks. */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function two(number) {
  return String(number).padStart(2, "0");
}
