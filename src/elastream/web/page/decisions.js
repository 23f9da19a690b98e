// What was decided, each opening to its reasons: measured, formula, clamps, expected, achieved.

import { Keyed, icon, make, setAttribute, setHidden, setText } from "./dom.js";
import { duration, plural, share, time, dayAndTime } from "./format.js";

const FORMULA = ["formula", "learned", "catch-up", "corrected", "tolerated", "inferred", "asked"];
const MEASURED = ["measured", "no data"];
const TONES = {
  effective: "ok", useless: "strained", harmful: "behind", unclear: "unknown",
  failed: "behind", "under way": "busy", rehearsed: "unknown", done: "plain",
};
const FEW = 12; // to begin with; a button shows the rest
const SAID = { rehearsed: "dry run", done: "done" };

/** `[name, before, after]` of every operator that changes. */
export function changes(decision) {
  const before = new Map(Object.entries(decision.before));
  return Object.entries(decision.after).filter(([name, count]) => before.get(name) !== count).map(([name, count]) => [name, before.get(name) ?? 0, count]);
}

export function changesText(decision) {
  return changes(decision).map(([name, before, after]) => `${name} ${before} → ${after}`).join(", ") || "no change";
}

export function wayOf(decision) {
  const found = changes(decision);
  const up = found.some(([, before, after]) => after > before);
  const down = found.some(([, before, after]) => after < before);
  return up && !down ? "up" : down && !up ? "down" : "mixed";
}

export class Decisions {
  constructor(host, count) {
    // hidden until it is known: the charts may be drawn with the marks of decisions before this list is
    this.nothing = make("p", { class: "nothing", hidden: true }, "No decision yet: nothing had to change.");
    this.list = make("ol", { class: "decision-list", reversed: true });
    this.all = false;
    this.more = make("button", { type: "button", class: "button more", on: { click: () => this.#showAll() } });
    this.count = count;
    host.append(this.nothing, this.list, this.more);
    this.items = new Keyed(this.list, ({ id }) => id, (decision) => new Item(decision));
  }

  show(decisions) {
    this.shown = decisions;
    const newestFirst = [...decisions.values()].reverse();
    setHidden(this.nothing, newestFirst.length > 0);
    setText(this.count, newestFirst.length ? `${plural(newestFirst.length, "decision")}, the newest first` : "");
    this.more.hidden = this.all || newestFirst.length <= FEW;
    setText(this.more, `Show all ${newestFirst.length}`);
    this.items.show(this.all ? newestFirst : newestFirst.slice(0, FEW), (item, decision) => item.show(decision));
  }

  #showAll() {
    this.all = true;
    this.show(this.shown);
    [...this.items.parts.values()][FEW]?.summary.focus();
  }

  open(id) {
    if (!this.items.parts.has(id)) this.#showAll();
    const item = this.items.parts.get(id);
    if (!item) return;
    item.details.open = true;
    item.details.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    item.summary.focus({ preventScroll: true });
  }
}

class Item {
  #decision = null;

  constructor() {
    this.time = make("time", { class: "decision-time" });
    this.way = make("span", { class: "decision-way" });
    this.kind = make("span", { class: "decision-kind" });
    this.changes = make("span", { class: "decision-changes" });
    this.badge = make("span", { class: "badge" });
    this.summary = make("summary", {}, this.way, make("span", { class: "decision-main" }, this.changes, make("span", { class: "decision-sub" }, this.time, this.kind)), this.badge);
    this.body = make("div", { class: "decision-body" });
    this.details = make("details", { class: "decision", on: { toggle: () => this.#fill() } }, this.summary, this.body);
    this.element = make("li", {}, this.details);
  }

  show(decision) {
    if (decision === this.#decision) return;
    this.#decision = decision;
    const way = wayOf(decision);
    setText(this.time, time(decision.at_s));
    setAttribute(this.time, "title", dayAndTime(decision.at_s));
    setText(this.kind, decision.kind);
    this.way.replaceChildren(icon(decision.kind === "rollback" ? "back" : way));
    this.details.dataset.way = way;
    this.changes.replaceChildren(...changeChips(decision));
    const word = decision.verdict ?? decision.outcome;
    setText(this.badge, SAID[word] ?? word);
    this.badge.dataset.tone = TONES[word] ?? "plain";
    this.#fill();
  }

  /** Reasons are only made for those that someone opened. */
  #fill() {
    this.body.replaceChildren(...(this.details.open ? reasons(this.#decision) : []));
  }
}

function changeChips(decision) {
  const found = changes(decision);
  if (!found.length) return [make("span", { class: "change" }, "no change")];
  return found.map(([name, before, after]) => make("span", { class: "change", data: { way: after > before ? "up" : "down" } },
    make("span", { class: "change-name" }, name), make("span", { class: "change-counts" }, `${before} → ${after}`)));
}

function reasons(decision) {
  const ofKind = (fits) => decision.reasons.filter(({ kind }) => fits(kind));
  const clamps = ofKind((kind) => !FORMULA.includes(kind) && !MEASURED.includes(kind));
  return [make("dl", { class: "reasons" },
    ...stage("Measured", reasonLines(ofKind((kind) => MEASURED.includes(kind)), "measured"), "nothing: it was not the policy that asked for it"),
    ...stage("Formula", reasonLines(ofKind((kind) => FORMULA.includes(kind)), "formula"), "none was needed"),
    ...stage("Clamps", reasonLines(clamps, null), "nothing held it back"),
    ...stage("Expected", expected(decision), "it does not say what it expects"),
    ...stage("Achieved", achieved(decision), "")),
  ];
}

function stage(name, lines, otherwise) {
  const shown = lines.length ? lines : [make("p", { class: "reason none" }, otherwise)];
  return [make("dt", {}, name), make("dd", {}, ...shown)];
}

/** The kind is told where it is not the one that gives the stage its name. */
export function reasonLines(found, usual) {
  return found.map(({ kind, text, operator }) => make("p", { class: "reason" },
    operator && [make("span", { class: "reason-operator" }, operator), " "],
    kind !== usual && [make("span", { class: "reason-kind" }, kind), " "],
    make("span", {}, text)));
}

function expected(decision) {
  if (decision.expected_share === null) return [];
  const before = decision.share_before === null ? "" : `, from ${share(decision.share_before)} when it was decided`;
  return [make("p", { class: "reason" }, `${share(decision.expected_share)} of the required rate${before}`)];
}

function achieved(decision) {
  const lines = [];
  if (decision.verdict !== null) lines.push(`${share(decision.achieved_share)} of the required rate: ${decision.verdict}`);
  else lines.push({ rehearsed: "nothing: a dry run only tells", "under way": "under way", failed: "nothing" }[decision.outcome] ?? "not judged yet");
  if (decision.took_s !== null) lines.push(`${decision.outcome === "failed" ? "failed after" : "carried out in"} ${duration(decision.took_s)}`);
  const other = decision.in_force ? changes({ before: decision.after, after: decision.in_force }) : [];
  if (other.length) lines.push(`in force since: ${other.map(([name, , count]) => `${name} ${count}`).join(", ")}, not what was asked for`);
  if (decision.detail) lines.push(decision.detail);
  return lines.map((text) => make("p", { class: "reason" }, text));
}
