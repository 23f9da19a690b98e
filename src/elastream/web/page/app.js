// Puts the page together: what comes from the run goes into the model, and what changed is drawn.

import { Refused, ask, token } from "./api.js";
import { Charts } from "./charts.js";
import { Controls } from "./controls.js";
import { Decisions, changesText } from "./decisions.js";
import { byId, healthIcon, make, setHidden, setText } from "./dom.js";
import { capital, duration } from "./format.js";
import { Graph } from "./graph.js";
import { Model } from "./model.js";
import { showOperator } from "./operator.js";
import { Executors, Log, ProposalPanel } from "./panels.js";
import { Status } from "./status.js";
import { follow } from "./stream.js";
import { Cost, Summary } from "./summary.js";

const API = "api/v1";
const ALL = ["about", "graph", "window", "cost", "proposal", "event", "decision", "manager", "live"];

const model = new Model();
const status = new Status(model);
const decisions = new Decisions(byId("decisions"), byId("decisions-count"));
const charts = new Charts({ host: byId("charts"), legend: byId("legend"), range: byId("range"), onPick: (id) => decisions.open(id) });
const graph = new Graph(byId("graph"), { onSelect: (name) => select(name === selected ? null : name) });
const summary = new Summary(byId("summary"));
const cost = new Cost(byId("cost"));
const proposal = new ProposalPanel(byId("proposal"), byId("proposal-when"));
const executors = new Executors(byId("executors"));
const log = new Log(byId("events"), byId("routine"));
const controls = new Controls(model);
let selected = null;

function select(name) {
  const before = selected;
  selected = name;
  changed(["window"]);
  if (name === null && before !== null) byId("graph").querySelector('[aria-pressed="true"]')?.focus();
}

byId("health-key").append(...["ok", "strained", "behind", "unknown"].map((health) =>
  make("li", { data: { health } }, healthIcon(health), health === "unknown" ? "not measured" : health)));

/** What draws what: each is a task of its own, so that the page answers in between. */
const drawings = [
  [["window", "graph", "cost"], () => summary.show(model)],
  [["window", "graph", "proposal"], () => model.run.graph && graph.show(model.run, selected)],
  [["window", "graph", "proposal", "manager"], () => showOperator(byId("operator"), model, selected, { onClose: () => select(null) })],
  [["decision"], () => decisions.show(model.decisions)], // before the charts, whose marks lead to it
  ...charts.draws.map((draw) => [["window", "graph", "decision"], () => model.run.graph && (charts.use(model), draw())]),
  [["cost"], () => cost.show(model.run)],
  [["proposal", "window"], () => proposal.show(model.run)],
  [["window"], () => executors.show(model.run.window)],
  [["event"], () => log.show(model.run.events)],
  [["manager", "graph", "window", "decision"], () => controls.show()],
];

const IN_A_FRAME = 5; // or the browser would have to lay out and paint all of it at once
let waiting = new Set();
let drawing = false;

function changed(parts) {
  parts.forEach((part) => waiting.add(part));
  status.show();
  if (!drawing && model.run) {
    drawing = true;
    requestAnimationFrame(drawWhatChanged);
  }
}

async function drawWhatChanged() {
  while (waiting.size) {
    const parts = waiting;
    waiting = new Set();
    const wanted = drawings.filter(([needs]) => needs.some((part) => parts.has(part)));
    for (const [index, [, draw]] of wanted.entries()) {
      draw();
      await ((index + 1) % IN_A_FRAME ? nextTask() : nextFrame());
    }
    await nextFrame(); // what comes within a frame is drawn once
  }
  drawing = false;
  if (!document.documentElement.dataset.drawn) performance.mark("drawn"); // the first time: how long it took to open
  document.documentElement.dataset.drawn = model.run.id; // of the newest update that can be seen
}

const nextFrame = () => new Promise(requestAnimationFrame);
const nextTask = () => globalThis.scheduler?.yield?.() ?? new Promise((done) => setTimeout(done));

function announce({ decision }) {
  if (decision && !model.decisions.has(decision.id)) setText(byId("announcer"), `Decision: ${changesText(decision)}`);
}

const ENGINES = { spark: "a run on Spark", simulated: "a simulated run" };

function footText() {
  const { configuration, run } = model;
  if (!configuration) return "";
  const what = ENGINES[run?.about.engine] ?? "a run";
  const interval = configuration.knobs.find(({ name }) => name === "interval_s")?.value;
  return [configuration.shown === "recording" ? `A recording of ${what}` : capital(what), configuration.policy && `policy ${configuration.policy}`, interval && `a window every ${duration(interval)}`].filter(Boolean).join(" · ");
}

async function configure() {
  try {
    model.configuration = await ask("GET", "configuration");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
  setText(byId("foot"), footText());
  changed(["manager"]);
}

follow(`${API}/stream`, {
  onRun(run) {
    model.begin(run);
    configure();
    changed(ALL);
  },
  onUpdate(update) {
    if (!model.run) return;
    announce(update);
    model.apply(update);
    if (update.about) configure(); // a recording to which another run is added
    changed(ALL.filter((part) => update[part] !== undefined && update[part] !== null));
  },
  onState(state) {
    model.connection = state;
    status.show();
    setHidden(byId("run"), !model.run?.graph);
  },
});

byId("look").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(byId("look-token").value.trim());
  byId("look-token").value = "";
});

setInterval(() => status.show(), 1_000); // how long ago the newest window came
