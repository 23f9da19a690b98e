// The connection to the run: everything to begin with, then what changes, pushed by the server.

const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15_000;

/**
 * Calls `onRun` with a whole run, `onUpdate` with what came since, `onState` with connecting, open or lost.
 * The browser connects again by itself and says where it stopped, so that only what was missed is sent; where it
 * gives up (the server answered, but not with a stream) this begins anew, a little later each time.
 */
export function follow(address, { onRun, onUpdate, onState }) {
  let waitMs = FIRST_WAIT_MS;
  let timer = 0;
  let source = null;

  const connect = () => {
    source = new EventSource(address);
    source.addEventListener("open", () => {
      waitMs = FIRST_WAIT_MS;
      onState("open");
    });
    source.addEventListener("run", (event) => onRun(JSON.parse(event.data)));
    source.addEventListener("update", (event) => onUpdate(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      onState("lost");
      if (source.readyState === EventSource.CLOSED) later();
    });
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(connect, waitMs);
    waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2);
  };
  const now = () => {
    if (source.readyState === EventSource.OPEN) return;
    clearTimeout(timer);
    source.close();
    connect();
  };
  // a laptop that wakes up, a phone that is back in a network: no need to wait
  addEventListener("online", now);
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => event.persisted && now());
  onState("connecting");
  connect();
}
