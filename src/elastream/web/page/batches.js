// Where the time of a batch goes: what every batch costs, and what its records cost.

import { Keyed, make, setAttribute, setText } from "./dom.js";
import { duration } from "./format.js";

const PARTS = [["driver_s", "driver", "planning and committing"], ["fixed_s", "fixed", "tasks and state"], ["records_s", "records", "the records"]];

export class Batches {
  constructor(host) {
    this.key = make("ul", { class: "key" }, ...PARTS.map(([, style, meaning]) => make("li", {}, make("span", { class: `swatch batch-${style}` }), meaning)),
      make("li", {}, make("span", { class: "swatch batch-limit" }), "the longest that is wanted"));
    this.list = make("ul", { class: "batches" });
    host.append(this.key, this.list);
    this.rows = new Keyed(this.list, ({ name }) => name, ({ name }) => row(name));
  }

  show(window) {
    const found = (window?.operators ?? []).filter(({ batch }) => batch);
    const longest = Math.max(0, ...found.map(({ batch }) => Math.max(batch.longest_s, total(batch))));
    this.rows.show(found, (part, { batch }) => fill(part, batch, longest));
  }
}

const total = (batch) => batch.driver_s + batch.fixed_s + batch.records_s;

function row(name) {
  const bars = PARTS.map(([field, style]) => make("span", { class: `batch-part batch-${style}`, data: { field } }));
  const limit = make("span", { class: "batch-limit" });
  const value = make("span", { class: "batch-value" });
  const element = make("li", { class: "batch" }, make("span", { class: "batch-name", title: name }, name),
    make("span", { class: "batch-bar" }, ...bars, limit), value);
  return { element, bars, limit, value };
}

function fill({ element, bars, limit, value }, batch, longest) {
  PARTS.forEach(([field], i) => {
    bars[i].style.width = `${(batch[field] / longest) * 100}%`;
  });
  limit.style.left = `${(batch.longest_s / longest) * 100}%`;
  setText(value, duration(total(batch)));
  const parts = PARTS.map(([field, , meaning]) => `${meaning} ${duration(batch[field])}`).join(", ");
  setAttribute(element, "title", `${parts}; at most ${duration(batch.longest_s)}; ${duration(batch.per_record_s)} a record`);
}
