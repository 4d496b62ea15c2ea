// How long ago something was. A laptop that slept an hour must not say "3 s ago": its monotonic clock may have stopped,
// its wall clock may have been set back; so the longer of the two is told.

/** Now, to be given to `secondsSince` later. */
export function stamp() {
  return { wall: Date.now(), steady: performance.now() };
}

/** How long ago that was, in seconds. */
export function secondsSince(then) {
  return Math.max(0, Date.now() - then.wall, performance.now() - then.steady) / 1000;
}
