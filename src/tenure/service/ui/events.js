// Server-sent events, read from a fetch: EventSource could not send the token.

/** Read `response` to its end: `onEvent(name, data)` for each event, `onHeard()` for every sign of life. */
export async function readEvents(response, { onEvent, onHeard }) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) { // ends with the stream
    const { value, done } = await reader.read();
    if (done) return;
    onHeard();
    const searched = Math.max(0, text.length - 1);
    text += value;
    let start = 0;
    for (let end = text.indexOf("\n\n", searched); end >= 0; end = text.indexOf("\n\n", start)) {
      tell(text.slice(start, end), onEvent);
      start = end + 2;
    }
    text = text.slice(start);
  }
}

// The service writes one line of each, ended by "\n"; a line that begins with a colon is a sign of life.
function tell(block, onEvent) {
  const fields = new Map(block.split("\n").map((line) => {
    const colon = line.indexOf(": ");
    return [line.slice(0, colon), line.slice(colon + 2)];
  }));
  if (fields.has("data")) onEvent(fields.get("event"), JSON.parse(fields.get("data")));
}
