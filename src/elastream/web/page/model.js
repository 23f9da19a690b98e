// What is known of the run: what the server sent to begin with, and every update since. Bounded, like the server's.

const MOST_POINTS = 720;
const MOST_DECISIONS = 200;
const MOST_EVENTS = 300;
const MOST_ROUTINE = 50;

/** What may come with every window: it must not push out what tells of something. */
export const isRoutine = ({ kind }) => kind === "held" || kind === "ignored";

const WORST = ["behind", "strained", "unknown", "ok"];

export class Model {
  run = null;
  configuration = null;
  connection = "connecting";
  /** By the page's own clock: when something last came. */
  heardAtMs = 0;

  begin(run) {
    this.run = run;
    // maps: a name such as "constructor" means nothing to them
    run.history.sources = new Map(Object.entries(run.history.sources));
    run.history.operators = new Map(Object.entries(run.history.operators));
    this.heardAtMs = performance.now();
    this.decisions = new Map(run.decisions.map((decision) => [decision.id, decision]));
  }

  apply(update) {
    const { run } = this;
    if (run === null) return;
    this.heardAtMs = performance.now();
    run.id = update.id;
    for (const part of ["about", "graph", "cost", "proposal", "manager", "live"]) {
      if (update[part] !== undefined && update[part] !== null) run[part] = update[part];
    }
    if (update.window) {
      run.window = update.window;
      append(run.history, update.window);
    }
    if (update.event) run.events = newest([...run.events, update.event]);
    if (update.decision) this.#decide(update.decision);
  }

  #decide(decision) {
    this.decisions.set(decision.id, decision);
    if (this.decisions.size > MOST_DECISIONS) this.decisions.delete(this.decisions.keys().next().value);
  }

  get scaled() {
    return this.run.graph.operators.filter((operator) => operator.kind !== "source");
  }

  windowOf(name) {
    return this.run.window?.operators.find((operator) => operator.name === name) ?? null;
  }

  /** What an operator dropped as late in all that is shown; null without event time. */
  lateOf(name) {
    const known = (this.run.history.operators.get(name)?.records_late ?? []).filter((count) => count !== null);
    return known.length ? known.reduce((total, count) => total + count, 0) : null;
  }

  /** The worst of the operators: what one look at the page should tell. */
  get health() {
    const found = (this.run.window?.operators ?? []).map((operator) => operator.health);
    return WORST.find((health) => found.includes(health)) ?? "unknown";
  }
}

function newest(events) {
  const telling = events.filter((event) => !isRoutine(event)).slice(-MOST_EVENTS);
  const routine = events.filter(isRoutine).slice(-MOST_ROUTINE);
  return [...telling, ...routine].sort((a, b) => a.id - b.id);
}

function append(history, window) {
  giveWay(history, window.at_s);
  const length = history.at_s.length;
  history.at_s.push(window.at_s);
  history.span_s.push(window.window_s);
  history.achieved_share.push(window.achieved_share);
  for (const source of window.sources) push(history.sources, source, length, SOURCE_FIELDS);
  for (const operator of window.operators) {
    if (operator.parallelism !== null) push(history.operators, operator, length, fieldsOf(history));
  }
  for (const columns of tables(history)) pad(columns, length + 1); // who is not in this window
  if (history.at_s.length > MOST_POINTS) thin(history);
}

/** Times rise, as at the server: once the clock steps back, what stood at that time or later gives way. */
function giveWay(history, atS) {
  const kept = history.at_s.findLastIndex((at) => at < atS) + 1;
  const columns = [history.at_s, history.span_s, history.achieved_share, ...tables(history).flatMap(Object.values)];
  for (const column of columns) column.length = Math.min(column.length, kept);
}

const tables = (history) => [...history.sources.values(), ...history.operators.values()];

/** Of an operator: the quantities that the server declares, with how two windows become one. */
const fieldsOf = (history) => ["parallelism", "health", ...Object.keys(history.merged_by)];

function push(all, row, length, fields) {
  if (!all.has(row.name)) all.set(row.name, Object.fromEntries(fields.map((field) => [field, []])));
  const columns = all.get(row.name);
  pad(columns, length);
  for (const field of fields) columns[field].push(row[field]);
}

const SOURCE_FIELDS = ["offered_per_s", "achieved_per_s", "processed_per_s", "expected_per_s", "prepared_per_s", "forecast_error"];

function pad(columns, length) {
  for (const column of Object.values(columns)) while (column.length < length) column.push(null);
}

/** The older half in pairs, as the server does: the newest keep their detail. */
function thin(history) {
  const half = Math.floor(history.at_s.length / 4) * 2;
  const spans = history.span_s.slice(0, half);
  for (const columns of tables(history)) {
    for (const field of Object.keys(columns)) columns[field] = paired(columns[field], half, spans, history.merged_by[field] ?? field);
  }
  history.achieved_share = paired(history.achieved_share, half, spans, "mean");
  history.at_s = paired(history.at_s, half, spans, "at_s");
  history.span_s = paired(history.span_s, half, spans, "sum");
}

function paired(column, half, spans, how) {
  const found = [];
  for (let i = 0; i < half; i += 2) found.push(both(column[i], column[i + 1], spans[i], spans[i + 1], how));
  return found.concat(column.slice(half));
}

/** How: that of a quantity, or the name of a field that has a way of its own; rates of sources have their mean. */
function both(first, second, firstS, secondS, how) {
  if (how === "at_s" || how === "parallelism") return second;
  if (first === null || second === null) return second ?? first;
  if (how === "health") return WORST[Math.min(WORST.indexOf(first), WORST.indexOf(second))];
  if (how === "sum") return first + second;
  if (how === "largest") return Math.max(first, second);
  const total = firstS + secondS;
  return total > 0 ? (first * firstS + second * secondS) / total : (first + second) / 2;
}
