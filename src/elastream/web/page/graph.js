// The pipeline: a card for each operator, with what it does now, coloured by its health.

import { healthIcon, make, setAttribute, setHealth, setHidden, setText, svg } from "./dom.js";
import { duration, number, percent, rate } from "./format.js";
import { layout } from "./layout.js";

export class Graph {
  #cards = new Map();
  #shown = null;
  #width = 0;

  constructor(host, { onSelect }) {
    this.host = host;
    this.onSelect = onSelect;
    this.lines = svg("svg", { class: "graph-lines", "aria-hidden": "true" });
    this.list = make("ul", { class: "graph-cards" });
    host.append(this.lines, this.list);
    new ResizeObserver(([entry]) => this.#resized(Math.floor(entry.contentRect.width))).observe(host);
  }

  show({ graph, window, proposal }, selected) {
    if (graph !== this.#shown) {
      this.#shown = graph;
      this.#build(graph);
    }
    const wanted = new Map((proposal?.advice ?? []).map((advice) => [advice.operator, advice]));
    const sources = new Map((window?.sources ?? []).map((source) => [source.name, source]));
    for (const operator of window?.operators ?? []) {
      const card = this.#cards.get(operator.name);
      if (!card) continue;
      card.show(operator, sources.get(operator.name), wanted.get(operator.name));
    }
    for (const [name, card] of this.#cards) setAttribute(card.button, "aria-pressed", String(name === selected));
  }

  #build(graph) {
    this.#cards = new Map(graph.operators.map((operator) => [operator.name, new Card(operator, this.onSelect)]));
    this.list.replaceChildren(...[...this.#cards.values()].map((card) => card.element));
    this.#place();
  }

  #resized(width) {
    if (width === this.#width) return;
    this.#width = width;
    this.#place();
  }

  #place() {
    if (!this.#shown || !this.#width) return;
    const found = layout(this.#shown.operators, this.#shown.edges, this.#width);
    for (const [name, { x, y, width, height }] of found.cards) {
      const { style } = this.#cards.get(name).element;
      style.transform = `translate(${x}px, ${y}px)`;
      style.width = `${width}px`;
      style.height = `${height}px`;
    }
    this.host.style.height = `${found.height}px`;
    setAttribute(this.lines, "viewBox", `-2 -2 ${this.#width + 4} ${found.height + 4}`);
    this.lines.replaceChildren(arrow(), ...found.lines.map((path) => svg("path", { d: path, class: "line", "marker-end": "url(#arrow)" })));
  }
}

function arrow() {
  const head = svg("path", { d: "M0 0.5L6 3.5L0 6.5z", class: "line-head" });
  return svg("defs", {}, svg("marker", { id: "arrow", markerWidth: 7, markerHeight: 7, refX: 6, refY: 3.5, orient: "auto", markerUnits: "userSpaceOnUse" }, head));
}

class Card {
  constructor(operator, onSelect) {
    this.operator = operator;
    this.isSource = operator.kind === "source";
    this.icon = healthIcon("unknown");
    this.word = make("span", { class: "card-word" }, "not measured");
    this.count = make("span", { class: "card-count" });
    this.wanted = make("span", { class: "card-wanted", hidden: true });
    this.fill = make("span", { class: "meter-fill" });
    this.meter = make("span", { class: "meter", hidden: this.isSource }, this.fill);
    this.rows = this.isSource
      ? [new Row("arrives"), new Row("gets in", "what the pipeline takes in"), new Row("gets through", "what goes through all of the pipeline")]
      : [new Row("does", "observed rate"), new Row("can do", "true rate"), new Row("busy", "utilization"), new Row("waiting", "backlog"), new Row("latency")];
    this.button = make(
      "button",
      { type: "button", class: "card", "aria-pressed": "false", data: { kind: operator.kind, health: "unknown" }, on: { click: () => onSelect(operator.name) } },
      make("span", { class: "card-head" },
        make("span", { class: "card-name", title: operator.name }, operator.name),
        make("span", { class: "card-size" }, this.count, this.wanted)),
      make("span", { class: "card-health" }, this.icon, this.word, this.isSource && make("span", { class: "card-kind" }, "source")),
      this.meter,
      make("span", { class: "card-rows" }, ...this.rows.map((row) => row.element)),
    );
    this.element = make("li", { class: "graph-card" }, this.button);
  }

  show(operator, source, advice) {
    this.button.dataset.health = operator.health;
    setHealth(this.icon, operator.health);
    setText(this.word, operator.health === "unknown" ? "not measured" : operator.health);
    setAttribute(this.button, "title", operator.why);
    if (this.isSource) {
      this.rows[0].show(rate(source?.offered_per_s));
      this.rows[1].show(rate(source?.achieved_per_s));
      this.rows[2].show(rate(source?.processed_per_s));
      return;
    }
    setText(this.count, `×${operator.parallelism ?? "?"}`);
    setAttribute(this.count, "aria-label", `parallelism ${operator.parallelism ?? "not known"}`);
    const wants = advice?.parallelism ?? operator.parallelism;
    setHidden(this.wanted, wants === operator.parallelism);
    setText(this.wanted, `→ ${wants}`);
    setAttribute(this.wanted, "title", `the policy wants ${wants}`);
    this.fill.style.width = `${Math.min(100, (operator.utilization ?? 0) * 100)}%`;
    const [does, can, busy, waiting, latency] = this.rows;
    does.show(rate(operator.observed_per_s));
    can.show(rate(operator.true_per_s));
    busy.show(percent(operator.utilization));
    waiting.show(number(operator.backlog));
    latency.show(duration(operator.latency_s));
  }
}

class Row {
  constructor(label, meaning = label) {
    this.value = make("span", { class: "row-value" }, "–");
    this.element = make("span", { class: "row", title: meaning }, make("span", { class: "row-label" }, label), this.value);
  }

  show(text) {
    setText(this.value, text);
  }
}
