// The small panels beside the decisions: what the policy wants now, executors, the manager's log.

import { Keyed, icon, make, setAttribute, setHidden, setText } from "./dom.js";
import { bytes, dayAndTime, number, plural, share, time } from "./format.js";
import { reasonLines } from "./decisions.js";
import { isRoutine } from "./model.js";

const MOST_LOGGED = 120;
const MOST_SLOTS = 32; // drawn one by one; more are only counted

export class ProposalPanel {
  constructor(host, when) {
    this.host = host;
    this.when = when;
  }

  show({ proposal, window }) {
    setText(this.when, proposal ? `${proposal.policy}, ${time(proposal.at_s)}` : "");
    if (!proposal) {
      this.host.replaceChildren(make("p", { class: "nothing" }, "It was not asked yet."));
      return;
    }
    const now = new Map((window?.operators ?? []).map(({ name, parallelism }) => [name, parallelism]));
    const open = this.host.querySelector("details")?.open ?? false;
    const head = make("tr", {}, ...["Operator", "Now", "Needs", "Wanted"].map((text, i) => make("th", { scope: "col", class: i ? "figure" : null }, text)));
    this.host.replaceChildren(
      make("table", { class: "table" }, make("thead", {}, head), make("tbody", {}, ...proposal.advice.map((advice) => adviceRow(advice, now.get(advice.operator))))),
      make("p", { class: "table-note" }, proposal.expected_share === null ? "" : `Expected: ${share(proposal.expected_share)} of the required rate.`),
      make("details", { class: "why", open }, make("summary", {}, "Why"), ...reasonLines(proposal.reasons, null)));
  }
}

function adviceRow({ operator, need, parallelism }, now) {
  const changed = parallelism !== null && parallelism !== now;
  return make("tr", { data: { changed } },
    make("th", { scope: "row", title: operator }, operator),
    make("td", { class: "figure" }, number(now ?? null)),
    make("td", { class: "figure" }, need === null ? number(null) : need.toFixed(2)),
    make("td", { class: "figure" }, parallelism === null ? "no opinion" : number(parallelism), changed && icon(parallelism > now ? "up" : "down")));
}

/** The processes that run tasks, and the nodes that instances were placed on, where the engine tells of either. */
export class Executors {
  constructor(host) {
    this.note = make("p", { class: "nothing" });
    this.head = make("p", { class: "executors-head" });
    const [executors, nodes] = [make("ul", { class: "executors" }), make("ul", { class: "executors" })];
    host.append(this.head, executors, nodes, this.note);
    this.executors = new Keyed(executors, ({ id }) => id, executorRow);
    this.nodes = new Keyed(nodes, ({ name }) => name, nodeRow);
  }

  show(window) {
    const { nodes = [], executors = [] } = window ?? {};
    setHidden(this.note, nodes.length + executors.length > 0);
    setText(this.note, window ? "The engine does not tell of executors." : "Nothing measured yet.");
    setHidden(this.head, executors.length < 2);
    setText(this.head, allText(executors));
    this.executors.show(executors, fillExecutor);
    this.nodes.show(nodes, fillNode);
  }
}

const total = (executors, field) => executors.reduce((sum, executor) => sum + (executor[field] ?? 0), 0);

function allText(executors) {
  return `${plural(executors.length, "executor")} with ${plural(total(executors, "cores"), "slot")}, ${number(total(executors, "busy_cores"))} busy`;
}

function executorRow({ id, host, node }) {
  const name = `${id === "driver" ? "driver" : `executor ${id}`} on ${node ?? host}`;
  const [value, fill, more] = [make("span", { class: "executor-value" }), make("span", { class: "meter-fill" }), make("span", { class: "executor-more" })];
  const meter = make("span", { class: "meter", "aria-hidden": "true" }, fill);
  return { element: make("li", { class: "executor" }, make("span", { class: "executor-name", title: `${name} (${host})` }, name), value, meter, more), value, fill, more };
}

function fillExecutor({ element, value, fill, more }, executor) {
  const { cores, processors, busy_cores: busy, active_tasks: tasks, memory_used_bytes: used, memory_bytes: all, peak_heap_bytes: heap, leaving } = executor;
  element.dataset.leaving = leaving;
  setText(value, busy === null ? plural(cores, "slot") : `${number(busy)} of ${plural(cores, "slot")} busy`);
  fill.style.width = `${Math.min(1, (busy ?? 0) / cores) * 100}%`;
  setText(more, [
    leaving && "leaving, takes no more tasks",
    processors !== null && `on ${plural(processors, "core")}`,
    `${plural(tasks, "task")} now`,
    all !== null && `${bytes(used)} of ${bytes(all)} for blocks`,
    heap !== null && `heap ${bytes(heap)} at most`,
  ].filter(Boolean).join(" · "));
}

function nodeRow({ name }) {
  const slots = make("span", { class: "slots", "aria-hidden": "true" });
  const value = make("span", { class: "executor-value" });
  return { element: make("li", { class: "executor" }, make("span", { class: "executor-name", title: name }, `node ${name}`), value, slots), slots, value };
}

function fillNode({ element, slots, value }, { slots: count, instances, available }) {
  element.dataset.available = available;
  setText(value, available ? `${instances} of ${plural(count, "slot")} in use` : "not available");
  const drawn = Math.min(MOST_SLOTS, Math.max(count, instances));
  while (slots.childElementCount > drawn) slots.lastChild.remove();
  while (slots.childElementCount < drawn) slots.append(make("span", { class: "slot" }));
  [...slots.children].forEach((slot, i) => slot.classList.toggle("used", i < instances));
}

export class Log {
  /** `routine` is a checkbox: whether to show what may come with every window. */
  constructor(host, routine) {
    this.host = host;
    this.routine = routine;
    this.events = [];
    routine.addEventListener("change", () => this.show(this.events));
    this.lines = new Keyed(host, ({ id }) => id, (event) => ({ element: line(event) }));
  }

  show(events) {
    this.events = events;
    const telling = this.routine.checked ? events : events.filter((event) => !isRoutine(event));
    this.lines.show(telling.slice(-MOST_LOGGED).reverse());
    setAttribute(this.host, "data-empty", String(telling.length === 0));
  }
}

function line({ kind, text, at_s: atS }) {
  return make("li", { class: "event", data: { kind } }, make("time", { title: dayAndTime(atS) }, time(atS)), make("span", {}, text));
}
