// Not too often.

/** Calls `act` once nobody has called for so long. */
export function debounced(act, milliseconds) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}

/** Calls `act`, an async function, one at a time: calls that come meanwhile make one more, at its end. */
export function oneAtATime(act) {
  let running = false;
  let again = false;
  return async () => {
    again = true;
    if (running) return;
    running = true;
    while (again) {
      again = false;
      await act();
    }
    running = false;
  };
}
