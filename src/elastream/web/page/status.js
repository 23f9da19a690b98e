// Whether there is a connection, whether news come, what the manager is doing, and what is wrong.

import { Keyed, byId, healthIcon, make, setAttribute, setHealth, setHidden, setText } from "./dom.js";
import { capital, dayAndTime, duration, time } from "./format.js";

const QUIET_INTERVALS = 5; // without a window for so long, something is stuck
const QUIET_LEAST_S = 60;
const RECENT_WINDOWS = 2; // trouble that is older is only in the log
const STOPPED = { "given up": "The manager has given up until the load changes.", "rolled back": "The last action was taken back." };
const SYMBOLS = { ok: "●", strained: "▲", behind: "■", unknown: "○" };

export class Status {
  constructor(model) {
    this.model = model;
    this.banners = new Keyed(byId("banners"), ({ key }) => key, () => banner());
  }

  show() {
    const { run, connection } = this.model;
    const measured = Boolean(run?.graph);
    setHidden(byId("run"), !measured);
    setHidden(byId("empty"), measured);
    if (!measured) this.#empty();
    setHidden(byId("look"), connection !== "refused");
    this.#connection();
    this.#phase();
    const shown = [...this.#news(connection)];
    this.banners.show(shown, fillBanner);
    if (run) this.#title();
  }

  #empty() {
    const { run, connection } = this.model;
    if (connection === "refused") this.#say("Looking needs a token", "Whoever runs this has given out tokens for it. Yours is missing, not known, or has ended.");
    else if (run && connection !== "lost") this.#say(run.live ? "Nothing measured yet" : "Nothing was recorded", run.live ? "The run has begun. The first window comes after one interval." : "The recording has no window.");
    else if (connection === "lost") this.#say("No connection", "The run does not answer. Trying again by itself.");
    else this.#say("Connecting", "Waiting for the run to answer.");
  }

  #say(title, text) {
    setText(byId("empty-title"), title);
    setText(byId("empty-text"), text);
  }

  #connection() {
    const { run, connection, heardAtMs } = this.model;
    const ageS = (performance.now() - heardAtMs) / 1000;
    const atS = run?.window?.at_s;
    const [state, text] =
      connection === "lost" ? ["lost", "Connection lost, trying again"]
      : connection === "refused" ? ["lost", "Looking needs a token"]
      : !run ? ["connecting", "Connecting"]
      : !run.live ? ["finished", this.model.configuration?.shown === "recording" ? "Recording" : "Finished"]
      : !run.graph ? ["waiting", "Live, nothing measured yet"]
      : this.#isQuiet(ageS) ? ["quiet", `Live, but no news for ${duration(ageS)}`]
      : ["live", `Live, ${time(atS)}`];
    const pill = byId("connection");
    if (pill.dataset.state !== state) pill.dataset.state = state;
    setText(byId("connection-text"), text);
    setAttribute(pill, "title", atS === undefined ? text : `The newest window ended at ${dayAndTime(atS)}`);
    setAttribute(pill, "aria-live", state === "live" ? "off" : "polite"); // not every window is to be read out
  }

  #isQuiet(ageS) {
    return ageS > Math.max(QUIET_LEAST_S, QUIET_INTERVALS * (this.model.run.window?.window_s ?? 0));
  }

  #phase() {
    const manager = this.model.run?.manager;
    const blind = manager?.deciding.startsWith("not deciding") && manager.phase !== "warming up" && "not deciding";
    const decides = manager?.phase === "observing" && manager.deciding.startsWith("deciding") && "deciding";
    const told = manager && [manager.paused && "scaling paused", manager.dry_run && "dry run", blind, decides || manager.phase].filter(Boolean).join(" · ");
    const pill = byId("phase");
    setHidden(pill, !told);
    setText(pill, told ?? "");
    pill.dataset.tone = blind || manager?.paused || manager?.phase in STOPPED ? "strained" : "quiet";
    setHidden(byId("deciding"), !manager?.deciding || manager.deciding === decides); // the pill says it
    setText(byId("deciding"), capital(manager?.deciding ?? ""));
  }

  #title() {
    const { run, health } = this.model;
    const { pipeline: name, policy } = run.about;
    setText(byId("pipeline"), name);
    setAttribute(byId("pipeline"), "title", `The pipeline: ${name}`);
    setHidden(byId("policy"), !policy);
    setText(byId("policy"), policy ? `policy ${policy}` : "");
    const title = `${SYMBOLS[health]} ${name} · elastream`;
    if (document.title !== title) document.title = title;
  }

  *#news(connection) {
    const { run } = this.model;
    if (connection === "lost" && run?.window) {
      yield { key: "lost", tone: "strained", title: "Connection lost.", text: `Shown is what came until ${dayAndTime(run.window.at_s)}. It is taken up again by itself.` };
    }
    if (connection === "refused" && run?.window) {
      yield { key: "refused", tone: "strained", title: "The token has ended, or was taken back.", text: `Shown is what came until ${dayAndTime(run.window.at_s)}.` };
    }
    if (!run) return;
    if (run.manager.phase in STOPPED) {
      const last = run.events.findLast(({ kind }) => kind === "phase");
      yield { key: "phase", tone: "strained", title: STOPPED[run.manager.phase], text: capital(last?.text.split(": ").slice(1).join(": ") ?? "") };
    }
    const since = run.window ? run.window.at_s - RECENT_WINDOWS * run.window.window_s : -Infinity;
    const trouble = run.events.findLast(({ kind }) => kind === "trouble");
    if (trouble && trouble.at_s >= since) yield { key: "trouble", tone: "behind", title: `Trouble at ${time(trouble.at_s)}.`, text: trouble.text };
    const told = run.manager.deciding.includes(run.window?.missing.join("; ")); // why nothing is decided stands below
    if (run.window?.missing.length && !told) yield { key: "missing", tone: "strained", title: "Not everything could be measured.", text: run.window.missing.join("; ") };
    for (const note of run.window?.notes ?? []) yield { key: `note ${note}`, tone: "strained", title: "Note:", text: note };
  }
}

function banner() {
  const [mark, title, text] = [healthIcon("strained"), make("strong"), make("span")];
  return { element: make("div", { class: "banner" }, mark, make("p", {}, title, " ", text)), mark, title, text };
}

function fillBanner({ element, mark, title, text }, news) {
  element.dataset.tone = news.tone;
  setHealth(mark, news.tone);
  setText(title, news.title);
  setText(text, news.text);
}
