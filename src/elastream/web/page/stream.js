// The connection to the run: everything to begin with, then what changes, pushed by the server.

import { authorization } from "./api.js";

const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15_000;
const REFUSED = [401, 403];

/**
 * Calls `onRun` with a whole run, `onUpdate` with what came since, `onState` with connecting, open, lost or refused.
 * Where the connection ends another is made, a little later each time, which says where the last one stopped, so that
 * only what was missed is sent. Not an EventSource, which cannot carry the token of those who may look.
 */
export function follow(address, { onRun, onUpdate, onState }) {
  const told = { run: onRun, update: onUpdate };
  let waitMs = FIRST_WAIT_MS;
  let timer = 0;
  let lastId = "";
  let isOpen = false;
  let current = new AbortController();

  const connect = async () => {
    const mine = (current = new AbortController());
    const ended = (state) => {
      if (mine !== current) return; // another was made meanwhile
      isOpen = false;
      onState(state);
      if (state === "lost") later();
    };
    try {
      const headers = { Accept: "text/event-stream", ...authorization(), ...(lastId && { "Last-Event-ID": lastId }) };
      const answer = await fetch(address, { headers, cache: "no-store", signal: mine.signal });
      if (!answer.ok) return ended(REFUSED.includes(answer.status) ? "refused" : "lost");
      waitMs = FIRST_WAIT_MS;
      isOpen = true;
      onState("open");
      for await (const { event, id, data } of eventsOf(answer.body)) {
        if (id) lastId = id;
        if (event in told) told[event](JSON.parse(data));
      }
    } catch (error) {
      if (!isOfConnection(error)) setTimeout(() => { throw error; }); // told as any error of the page
    }
    ended("lost");
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(connect, waitMs);
    waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2);
  };
  const now = () => {
    if (isOpen) return;
    clearTimeout(timer);
    current.abort();
    connect();
  };
  // a laptop that wakes up, a phone that is back in a network, another token: no need to wait
  addEventListener("online", now);
  addEventListener("token", now);
  addEventListener("pagehide", () => {
    isOpen = false;
    current.abort();
  });
  addEventListener("pageshow", (event) => event.persisted && now());
  onState("connecting");
  connect();
}

const isOfConnection = (error) => error instanceof TypeError && /fetch|network/i.test(error.message) || error.name === "AbortError";

/** Server-Sent Events as they are written here: a line for each field, and an empty one behind each event. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const end = rest.lastIndexOf("\n\n");
    if (end < 0) continue;
    for (const text of rest.slice(0, end).split("\n\n")) yield Object.fromEntries(text.split("\n").map(field));
    rest = rest.slice(end + 2);
  }
}

function field(line) {
  const at = line.indexOf(": ");
  return [line.slice(0, Math.max(0, at)), line.slice(at + 2)];
}
