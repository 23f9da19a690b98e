// At a glance: whether it keeps up, what comes in, what it uses; and what it has cost beside a static peak.

import { healthIcon, make, setAttribute, setHealth, setHidden, setText } from "./dom.js";
import { NOTHING, duration, instanceTime, number, percent, plural, rate, share } from "./format.js";

const sum = (values) => {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
};

export class Summary {
  constructor(host) {
    this.icon = healthIcon("unknown");
    this.tiles = {
      share: tile("Achieved", "of the rate that is asked for", this.icon),
      input: tile("Input"),
      instances: tile("Instances"),
      backlog: tile("Backlog"),
      latency: tile("Latency"),
      late: tile("Dropped as late"),
      saved: tile("Saved", "against a static peak"),
    };
    host.append(...Object.values(this.tiles).map(({ element }) => element));
  }

  show(model) {
    const { window, cost } = model.run;
    const scaled = (window?.operators ?? []).filter(({ parallelism }) => parallelism !== null);
    const health = isShort(model) ? "unknown" : model.health;
    setHealth(this.icon, health);
    setAttribute(this.tiles.share.element, "data-health", health);
    this.#set("share", share(window?.achieved_share ?? null), saidOf(model));
    this.#set("input", rate(sum((window?.sources ?? []).map(({ offered_per_s: offered }) => offered))),
      `${rate(sum((window?.sources ?? []).map(({ processed_per_s: processed }) => processed)))} get through`);
    const peak = sum(Object.values(cost.peak));
    this.#set("instances", number(sum(scaled.map(({ parallelism }) => parallelism))), peak === null ? "" : `${number(peak)} at most`);
    const [waiting, most] = worst(scaled, "backlog");
    this.#set("backlog", number(sum(scaled.map(({ backlog }) => backlog))), waiting ? `most wait for ${waiting}` : most === null ? "not measured" : "nothing waits");
    const [slowest] = worst(scaled, "latency_s");
    const latency = window?.latency_s ?? null;
    this.#set("latency", duration(latency), latencyNote(window, cost) ?? (slowest ? `most at ${slowest}` : latency === null ? "not measured" : ""));
    const late = scaled.map(({ name }) => ({ name, late: model.lateOf(name) }));
    const [dropping, lost] = worst(late, "late");
    setHidden(this.tiles.late.element, lost === null); // only where there is event time
    // of an aggregate, records of one group in a batch are counted as one
    this.#set("late", `${dropping ? "≥ " : ""}${number(sum(late.map(({ late: count }) => count)))}`, dropping ? `most by ${dropping}` : "nothing");
    this.#set("saved", percent(cost.saved_share), "against a static peak");
  }

  #set(name, value, note) {
    setText(this.tiles[name].value, value);
    setText(this.tiles[name].note, note);
    setAttribute(this.tiles[name].note, "title", note);
  }
}

function tile(name, note = "", mark = null) {
  const value = make("span", { class: "tile-value" }, NOTHING);
  const small = make("span", { class: "tile-note" }, note);
  const element = make("div", { class: "tile" }, make("span", { class: "tile-name" }, name), make("span", { class: "tile-main" }, mark, value), small);
  return { element, value, note: small };
}

/** Where a latency was asked for: what it is, and for how long it has been kept. */
function latencyNote(window, cost) {
  if (!window?.latency_target_s) return null;
  const kept = cost.latency_asked_s > 0 ? `, kept ${percent(cost.latency_kept_s / cost.latency_asked_s)} of the time` : "";
  return `of ${duration(window.latency_target_s)}${kept}`;
}

const KEPT_UP = 0.95; // as the server has it
const WORDS = { ok: "keeps up", strained: "keeps up, with strain", behind: "falls behind", unknown: "not measured" };

/** Less was done than arrived, and yet no operator is behind: a batch that ends in the next window, or was missed. */
const isShort = ({ health, run: { window } }) => health === "ok" && window.achieved_share !== null && window.achieved_share < KEPT_UP;

function saidOf(model) {
  if (isShort(model)) return model.run.window.missing.length ? "not all was measured" : "no operator is behind";
  const alike = (model.run.window?.operators ?? []).filter(({ health }) => health === model.health);
  const first = alike.find(({ parallelism }) => parallelism !== null) ?? alike[0]; // a source is behind because of others
  const word = WORDS[model.health];
  return first && (model.health === "behind" || model.health === "strained") ? `${word}: ${first.name}` : word;
}

/** The name and value of the operator with the highest; no name where that is nothing. */
function worst(operators, field) {
  const known = operators.filter((operator) => operator[field] !== null);
  if (!known.length) return [null, null];
  const found = known.reduce((a, b) => (b[field] > a[field] ? b : a));
  return [found[field] > 0 ? found.name : null, found[field]];
}

export class Cost {
  constructor(host) {
    this.used = bar("This run", "used");
    this.peak = bar("Static peak", "peak");
    this.text = make("p", { class: "cost-text" });
    host.append(this.used.element, this.peak.element, this.text);
  }

  show({ cost }) {
    const most = Math.max(cost.instance_s, cost.static_peak_instance_s) || 1;
    this.used.set(cost.instance_s / most, instanceTime(cost.instance_s));
    this.peak.set(cost.static_peak_instance_s / most, instanceTime(cost.static_peak_instance_s));
    setText(this.text, costText(cost));
  }
}

function costText(cost) {
  if (cost.saved_share === null) return "Nothing measured yet.";
  const peak = Object.values(cost.peak).reduce((total, value) => total + value, 0);
  const parts = Object.entries(cost.peak).map(([name, count]) => `${name} ${count}`).join(", ");
  const less = cost.saved_share > 0.005 ? `${percent(cost.saved_share)} less than` : "as much as";
  return `In ${duration(cost.span_s)}, ${less} ${plural(peak, "instance")} all the time, the most that each operator has had: ${parts}.`;
}

function bar(name, style) {
  const fill = make("span", { class: `cost-fill cost-${style}` });
  const value = make("span", { class: "cost-value" });
  return {
    element: make("div", { class: "cost" }, make("span", { class: "cost-name" }, name), value, make("span", { class: "cost-bar" }, fill)),
    set(part, text) {
      fill.style.width = `${part * 100}%`;
      setText(value, text);
    },
  };
}
