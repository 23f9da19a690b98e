// One chart over time, drawn as SVG: lines, areas or steps, marks of decisions, and a crosshair that all charts share.

import { make, setAttribute, setHidden, setText, svg } from "./dom.js";
import { dayAndTime, isWall, tick } from "./format.js";
import { nearest, timeTicks, valueScale } from "./scales.js";

const MARGIN = { left: 52, right: 14, top: 14, bottom: 24 };
const MOST_ROWS = 12;
const MARK_SIZE = 5;
const [THIN, WIDER, FEW] = [1.8, 1.7, 4];
const [LABEL, SHORT_LABEL] = [78, 58]; // pixels that a time on the axis takes
const HALF_A_LABEL = 26; // one at the edge would be cut off
const REACH = 9; // pixels: how near to a mark a click means it
let charts = 0;
const ZONE_S = -60 * new Date().getTimezoneOffset();

/** The time that the reader points at, in all charts at once. */
export class Pointer {
  #listeners = new Set();
  at = null;

  listen(listener) {
    this.#listeners.add(listener);
  }

  move(at, chart) {
    this.at = at;
    for (const listener of this.#listeners) listener(at, chart);
  }
}

export class Chart {
  #size = { width: 0, height: 0 };
  #shown = null;

  /** `onPick` is called with the id of a decision whose mark was chosen. */
  constructor(host, { label, format, pointer, onPick, whole = false, marked = false }) {
    Object.assign(this, { host, label, format, pointer, onPick, whole, marked });
    this.grid = svg("g", { class: "chart-grid" });
    this.clip = svg("rect");
    const clip = `clip-${charts++}`; // what began before the first shown moment does not reach into the labels
    this.series = svg("g", { class: "chart-series", "clip-path": `url(#${clip})` });
    this.marks = svg("g", { class: "chart-marks" });
    this.cross = svg("g", { class: "chart-cross" });
    this.picture = svg("svg", { class: "chart-picture", "aria-hidden": "true" }, svg("defs", {}, svg("clipPath", { id: clip }, this.clip)), this.grid, this.marks, this.series, this.cross);
    this.tip = make("div", { class: "tip", hidden: true });
    this.spoken = make("p", { class: "unseen", role: "status" });
    this.nothing = make("p", { class: "chart-nothing", hidden: true }, "Nothing measured yet");
    this.plot = make("div", { class: "chart", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": label }, this.picture, this.nothing, this.tip);
    host.append(this.plot, this.spoken);
    this.#listen();
  }

  /**
   * `times` rise; each series is `{ name, values, style, kind }` with one value or null for each time, kind is line,
   * area or step; marks are `{ at, id, way }`. `from` and `to` are the ends of the axis.
   */
  show(shown) {
    this.#shown = shown;
    this.#draw();
  }

  #listen() {
    new ResizeObserver(([entry]) => {
      const [width, height] = [Math.floor(entry.contentRect.width), Math.floor(entry.contentRect.height)];
      if (width === this.#size.width && height === this.#size.height) return;
      this.#size = { width, height };
      this.#draw();
    }).observe(this.plot);
    this.pointer.listen((at, chart) => this.#point(at, chart === this));
    this.plot.addEventListener("pointermove", (event) => this.pointer.move(this.#timeAt(event), this));
    this.plot.addEventListener("pointerleave", () => this.pointer.move(null, this));
    this.plot.addEventListener("blur", () => this.pointer.move(null, this));
    this.plot.addEventListener("click", (event) => this.#pick(this.#timeAt(event)));
    this.plot.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const times = this.#shown?.times ?? [];
    if (!times.length) return;
    const [first, last] = [this.#firstIndex(), times.length - 1];
    const now = this.pointer.at === null ? last + 1 : nearest(times, this.pointer.at);
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: first, End: last, PageUp: now - 10, PageDown: now + 10 };
    if (event.key in moves) {
      event.preventDefault();
      this.pointer.move(times[Math.min(last, Math.max(first, moves[event.key]))], this);
      setText(this.spoken, this.tip.innerText.replaceAll("\n", " "));
    } else if (event.key === "Enter" && this.pointer.at !== null) {
      event.preventDefault(); // or the same key would close the decision that has the focus by then
      this.#pick(this.pointer.at, Infinity);
    } else if (event.key === "Escape") this.pointer.move(null, this);
  }

  #firstIndex() {
    const { times, from } = this.#shown;
    const found = times.findIndex((at) => at >= from);
    return found < 0 ? times.length - 1 : found;
  }

  #pick(at, reach = REACH) {
    const marks = (this.marked && this.#shown?.marks) || [];
    let [best, distance] = [null, reach];
    for (const mark of marks) {
      const away = Math.abs(this.#x(mark.at) - this.#x(at));
      if (away <= distance) [best, distance] = [mark, away];
    }
    if (best) this.onPick(best.id);
  }

  // Places

  get #inner() {
    return Math.max(1, this.#size.width - MARGIN.left - MARGIN.right);
  }

  #x(at) {
    const { from, to } = this.#shown;
    return MARGIN.left + ((at - from) / (to - from || 1)) * this.#inner;
  }

  #y(value) {
    const inner = this.#size.height - MARGIN.top - MARGIN.bottom;
    return MARGIN.top + inner * (1 - value / this.scale.most);
  }

  #timeAt(event) {
    if (!this.#shown?.times.length) return null;
    const { from, to, times } = this.#shown;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const at = from + ((x - MARGIN.left) / this.#inner) * (to - from);
    return times[nearest(times, Math.max(from, Math.min(to, at)))];
  }

  // Drawing

  #draw() {
    const { width, height } = this.#size;
    if (!this.#shown || !width || !height) return;
    const { series, times, marks, from, to } = this.#shown;
    const first = Math.max(0, this.#firstIndex() - 1);
    this.scale = valueScale(highest(series, this.#firstIndex()), { whole: this.whole });
    setAttribute(this.picture, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(this.picture, "height", height);
    const room = { x: MARGIN.left, y: 0, width: this.#inner + 2, height: height - MARGIN.bottom + 2 };
    for (const [name, value] of Object.entries(room)) setAttribute(this.clip, name, value);
    setHidden(this.nothing, times.length > 0);
    this.#drawGrid(from, to);
    this.series.replaceChildren(...series.flatMap((one, i) => this.#paths(one, times, first, series.length - 1 - i)));
    const here = this.marked ? marks.filter(({ at }) => at >= from && at <= to) : [];
    this.marks.replaceChildren(...here.map((mark) => this.#mark(mark)));
    setAttribute(this.plot, "aria-label", this.#summary());
    if (this.pointer.at !== null) this.#point(this.pointer.at, !this.tip.hidden);
  }

  #drawGrid(from, to) {
    const { width, height } = this.#size;
    const bottom = height - MARGIN.bottom;
    const lines = this.scale.ticks.flatMap((value) => {
      const y = Math.round(this.#y(value)) + 0.5;
      return [
        svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y, class: value === 0 ? "axis" : null }),
        svg("text", { x: MARGIN.left - 8, y: y + 3.5, "text-anchor": "end" }, this.format(value)),
      ];
    });
    const room = Math.max(2, Math.floor(this.#inner / LABEL));
    const short = isWall(from) ? Math.max(2, Math.floor(this.#inner / SHORT_LABEL)) : room;
    const { step, ticks } = timeTicks(from, to, { room, short, offsetS: isWall(from) ? ZONE_S : 0 });
    const labels = ticks.map((at) => {
      const x = this.#x(at);
      const place = x > width - HALF_A_LABEL ? { x: width, "text-anchor": "end" } : { x, "text-anchor": "middle" };
      return svg("text", { ...place, y: bottom + 16 }, tick(at, step));
    });
    this.grid.replaceChildren(...lines, ...labels);
  }

  /** `over` is how many are drawn over it: steps are often equal, so each of a few shows at the edges of those. */
  #paths({ values, style, kind }, times, first, over) {
    const path = kind === "step" ? this.#steps(values, times, first) : this.#lines(values, times, first);
    const line = svg("path", { d: path, class: `series ${style}` });
    if (kind === "step" && this.#shown.series.length <= FEW) line.style.strokeWidth = THIN + WIDER * over;
    if (kind !== "area") return [line];
    return [svg("path", { d: this.#area(values, times, first), class: `area ${style}` }), line];
  }

  #lines(values, times, first) {
    let [path, pen] = ["", "M"];
    for (let i = first; i < times.length; i++) {
      if (values[i] === null || values[i] === undefined) pen = "M";
      else {
        path += `${pen}${this.#x(times[i]).toFixed(1)} ${this.#y(values[i]).toFixed(1)}`;
        pen = "L";
      }
    }
    return path;
  }

  /** A window's parallelism is that of the time up to its end. */
  #steps(values, times, first) {
    const { spans } = this.#shown;
    let [path, open] = ["", false];
    for (let i = first; i < times.length; i++) {
      if (values[i] === null || values[i] === undefined) open = false;
      else {
        const y = this.#y(values[i]).toFixed(1);
        path += open ? `V${y}` : `M${this.#x(times[i] - spans[i]).toFixed(1)} ${y}`;
        path += `H${this.#x(times[i]).toFixed(1)}`;
        open = true;
      }
    }
    return path;
  }

  #area(values, times, first) {
    const base = this.#y(0).toFixed(1);
    const known = [];
    for (let i = first; i < times.length; i++) if (typeof values[i] === "number") known.push(i);
    if (!known.length) return "";
    const points = known.map((i) => `${this.#x(times[i]).toFixed(1)} ${this.#y(values[i]).toFixed(1)}`);
    return `M${this.#x(times[known[0]]).toFixed(1)} ${base}L${points.join("L")}L${this.#x(times[known.at(-1)]).toFixed(1)} ${base}Z`;
  }

  #mark({ at, way, title }) {
    const x = this.#x(at);
    const top = MARGIN.top - 5;
    const shape = { up: `M${x} ${top - MARK_SIZE}l5 8h-10z`, down: `M${x} ${top + MARK_SIZE - 2}l5 -8h-10z`, mixed: `M${x} ${top - 6}l5 5l-5 5l-5 -5z` }[way];
    return svg("g", { class: "mark", data: { way } },
      svg("title", {}, title),
      svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: this.#size.height - MARGIN.bottom }),
      svg("path", { d: shape }));
  }

  #summary() {
    const { series, times } = this.#shown;
    if (!times.length) return `${this.label}: nothing measured yet`;
    const latest = series.map(({ name, values }) => `${name} ${this.format(values.at(-1))}`).join(", ");
    return `${this.label}. Latest: ${latest}. Arrow keys move through time${this.marked ? ", Enter opens the nearest decision" : ""}.`;
  }

  // The crosshair

  #point(at, own) {
    const shown = this.#shown;
    if (at === null || !shown?.times.length || !this.scale || at < shown.from) {
      this.cross.replaceChildren();
      setHidden(this.tip, true);
      return;
    }
    const index = nearest(shown.times, at);
    const x = this.#x(shown.times[index]);
    const dots = shown.series
      .filter(({ values }) => typeof values[index] === "number")
      .map(({ values, style }) => svg("circle", { cx: x, cy: this.#y(values[index]), r: 3.2, class: `dot ${style}` }));
    this.cross.replaceChildren(svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: this.#size.height - MARGIN.bottom }), ...dots);
    setHidden(this.tip, !own);
    if (own) this.#fillTip(index, x);
  }

  #fillTip(index, x) {
    const { series, times, marks, spans } = this.#shown;
    const rows = series
      .map((one) => ({ ...one, value: one.values[index] }))
      .filter(({ value }) => value !== null && value !== undefined)
      .sort((a, b) => b.value - a.value);
    const here = marks.filter(({ at }) => at > times[index] - spans[index] && at <= times[index]);
    this.tip.replaceChildren(
      make("p", { class: "tip-time" }, dayAndTime(times[index])),
      ...rows.slice(0, MOST_ROWS).map(({ name, style, value }) => make("p", { class: "tip-row" },
        make("span", { class: `swatch ${style}` }), make("span", { class: "tip-name" }, name), make("span", { class: "tip-value" }, this.format(value)))),
      ...(rows.length > MOST_ROWS ? [make("p", { class: "tip-more" }, `and ${rows.length - MOST_ROWS} more`)] : []),
      ...here.map(({ title }) => make("p", { class: "tip-mark" }, title)),
    );
    const width = this.tip.offsetWidth;
    const left = x + 14 + width > this.#size.width ? x - 14 - width : x + 14;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${MARGIN.top}px)`;
  }
}

function highest(series, first) {
  let most = 0;
  for (const { values } of series) for (let i = first; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}
