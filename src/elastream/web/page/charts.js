// Which charts there are, how far back they go, and which operators they show.

import { Batches } from "./batches.js";
import { Chart, Pointer } from "./chart.js";
import { make, setAttribute, setHidden, setText } from "./dom.js";
import { duration, number, percent, rate } from "./format.js";
import { changesText, wayOf } from "./decisions.js";

const RANGES = [["5 min", 300], ["15 min", 900], ["1 h", 3600], ["All", Infinity]];
const STYLES = 10;
const DASHES = ["", "dashed", "dotted"];
const METRICS = {
  backlog: { title: "Backlog", unit: "records that wait", format: number },
  latency_s: { title: "Latency", unit: "from arrival to result", format: duration },
  utilization: { title: "Utilization", unit: "share of the time that is useful", format: percent },
};

/** The colour of an operator, the same everywhere: by its place in the graph. */
export function styleOf(index) {
  return `s${index % STYLES} ${DASHES[Math.floor(index / STYLES) % DASHES.length]}`.trim();
}

export class Charts {
  #model = null;
  #range = Infinity;
  #hidden = new Set();
  #metric = "backlog";
  #legend = "";

  constructor({ host, legend, range, onPick }) {
    Object.assign(this, { legend });
    const pointer = new Pointer();
    const common = { pointer, onPick };
    const input = panel("Input and throughput", "records per second");
    const parallelism = panel("Parallelism", "instances; marks are decisions");
    const metric = panel("", "");
    const batches = panel("Time of a batch", "fixed cost, and the cost of its records");
    this.metricPanel = metric;
    this.input = new Chart(input.body, { ...common, label: "Input and throughput", format: rate });
    this.parallelism = new Chart(parallelism.body, { ...common, label: "Parallelism", format: number, whole: true, marked: true });
    this.metric = new Chart(metric.body, { ...common, label: "Backlog", format: number });
    this.batches = new Batches(batches.body);
    this.batchPanel = batches;
    host.append(input.element, parallelism.element, metric.element, batches.element);
    this.foreseenKey = key([["expected", "was expected"], ["prepared", "was prepared for"]]);
    setHidden(this.foreseenKey, true);
    input.head.append(key([["offered", "arrives"], ["processed", "gets through"]]), this.foreseenKey);
    metric.head.append(choice("What is shown of each operator", Object.entries(METRICS).map(([name, { title }]) => [title, name]), "backlog", (name) => {
      this.#metric = name;
      this.drawMetric();
    }));
    range.append(...choice("How far back", RANGES, Infinity, (seconds) => {
      this.#range = seconds;
      this.draws.forEach((draw) => draw());
    }).childNodes);
  }

  /** One after the other, so that none takes long. */
  get draws() {
    return [() => this.drawInput(), () => this.drawParallelism(), () => this.drawMetric(), () => this.drawBatches()];
  }

  use(model) {
    this.#model = model;
    const names = model.scaled.map(({ name }) => name);
    if (JSON.stringify(names) === this.#legend) return;
    this.#legend = JSON.stringify(names);
    this.#hidden.clear();
    this.legend.replaceChildren(...names.map((name, index) => this.#legendEntry(name, index)));
  }

  #legendEntry(name, index) {
    const entry = make("button", { type: "button", class: "legend-entry", "aria-pressed": "true", title: `Show or hide ${name}` },
      make("span", { class: `swatch ${styleOf(index)}` }), make("span", { class: "legend-name" }, name));
    entry.addEventListener("click", () => {
      if (!this.#hidden.delete(name)) this.#hidden.add(name);
      setAttribute(entry, "aria-pressed", String(!this.#hidden.has(name)));
      this.drawParallelism();
      this.drawMetric();
    });
    return entry;
  }

  #frame() {
    const { at_s: times, span_s: spans } = this.#model.run.history;
    const to = times.at(-1) ?? 1;
    const began = times.length ? times[0] - spans[0] : 0;
    return { times, spans, from: Math.max(began, to - this.#range), to, marks: this.#marks() };
  }

  #marks() {
    return [...this.#model.decisions.values()].map((decision) => ({
      at: decision.at_s, id: decision.id, way: wayOf(decision), title: `${decision.kind}: ${changesText(decision)}`,
    }));
  }

  drawInput() {
    const { sources } = this.#model.run.history;
    const [offered, processed, expected, prepared] = [[], [], [], []];
    for (const columns of sources.values()) {
      add(offered, columns.offered_per_s);
      add(processed, columns.processed_per_s);
      add(expected, columns.expected_per_s);
      add(prepared, columns.prepared_per_s);
    }
    const foreseen = expected.some((value) => value !== null);
    setHidden(this.foreseenKey, !foreseen);
    this.input.show({
      ...this.#frame(),
      series: [
        { name: "arrives", values: offered, style: "offered", kind: "area" },
        { name: "gets through", values: processed, style: "processed", kind: "line" },
        ...(foreseen ? [
          { name: "was prepared for", values: prepared, style: "prepared", kind: "line" },
          { name: "was expected", values: expected, style: "expected", kind: "line" },
        ] : []),
      ],
    });
  }

  drawParallelism() {
    this.parallelism.show({ ...this.#frame(), series: this.#perOperator("parallelism", "step") });
  }

  drawMetric() {
    const { title, unit, format } = METRICS[this.#metric];
    setText(this.metricPanel.title, title);
    setText(this.metricPanel.unit, unit);
    Object.assign(this.metric, { label: title, format });
    this.metric.show({ ...this.#frame(), series: this.#perOperator(this.#metric, "line") });
  }

  #perOperator(column, kind) {
    return this.#model.scaled
      .map(({ name }, index) => ({ name, index, values: this.#model.run.history.operators.get(name)?.[column] ?? [] }))
      .filter(({ name }) => !this.#hidden.has(name))
      .map(({ name, index, values }) => ({ name, values, style: styleOf(index), kind }));
  }

  drawBatches() {
    const { window } = this.#model.run;
    setHidden(this.batchPanel.element, !window?.operators.some(({ batch }) => batch)); // only engines with batches
    this.batches.show(window);
  }
}

/** Several sources together; unknown only where none of them is known. */
function add(total, values) {
  values.forEach((value, i) => {
    if (value !== null) total[i] = (total[i] ?? 0) + value;
    else total[i] ??= null;
  });
}

function panel(title, unit) {
  const heading = make("h3", {}, title);
  const hint = make("p", { class: "hint" }, unit);
  const head = make("div", { class: "panel-head" }, heading, hint);
  const body = make("div", { class: "panel-body" });
  return { element: make("article", { class: "panel" }, head, body), head, body, title: heading, unit: hint };
}

function key(entries) {
  return make("ul", { class: "key" }, ...entries.map(([style, name]) => make("li", {}, make("span", { class: `swatch ${style}` }), name)));
}

/** One of several, as radio buttons that look like a segmented switch. */
function choice(label, options, chosen, onChoose) {
  const group = `choice-${label.replaceAll(" ", "-")}`;
  return make("div", { class: "segments", role: "radiogroup", "aria-label": label }, ...options.map(([text, value]) => make("label", {},
    make("input", { type: "radio", name: group, checked: value === chosen, on: { change: () => onChoose(value) } }),
    make("span", {}, text))));
}
