// The operator that the reader chose: everything that is known of it.

import { healthIcon, icon, make } from "./dom.js";
import { NOTHING, duration, number, percent, rate } from "./format.js";

const KINDS = { source: "source", operator: "operator", sink: "operator that nothing reads from" };

export function showOperator(host, model, name, { onClose }) {
  const operator = model.run.graph?.operators.find((found) => found.name === name);
  host.hidden = !operator;
  if (!operator) return host.replaceChildren();
  const window = model.windowOf(name);
  const advice = model.run.proposal?.advice.find((found) => found.operator === name);
  const facts = operator.kind === "source" ? sourceFacts(model, name) : operatorFacts(operator, window, advice, model);
  const health = window?.health ?? "unknown";
  return host.replaceChildren(
    make("div", { class: "operator-head" },
      make("h3", {}, name),
      make("p", { class: "hint" }, KINDS[operator.kind]),
      make("button", { type: "button", class: "button icon-button", "aria-label": "Close", on: { click: onClose } }, icon("close"))),
    make("p", { class: "operator-why", data: { health } }, healthIcon(health), make("strong", {}, health === "unknown" ? "not measured" : health), make("span", {}, window?.why ?? "nothing measured yet")),
    make("dl", { class: "facts" }, ...facts.map(([term, value, meaning]) => make("div", { title: meaning }, make("dt", {}, term), make("dd", {}, value)))));
}

function sourceFacts(model, name) {
  const source = model.run.window?.sources.find((found) => found.name === name);
  return [["Arrives", rate(source?.offered_per_s)], ["Gets in", rate(source?.achieved_per_s)], ["Goes through all of the pipeline", rate(source?.processed_per_s)], ...outlookFacts(model, name), ["Read by", readers(model, name)]];
}

function outlookFacts(model, name) {
  const said = model.run.proposal?.outlook.find(({ source }) => source === name);
  if (!said) return [];
  return [
    ["Expected", `${rate(said.expected_per_s)} in ${duration(said.ahead_s)}`, "as far as the forecast is trusted"],
    ["Prepared for", rate(said.at_most_per_s), "more is rare enough, by what being short costs"],
    ["Forecast off by", `${percent(said.error)}; no change: ${percent(said.last_value_error)}`, "the mean error of such forecasts, and of expecting no change"],
    ["Trusted", percent(said.trusted), "how much of the forecast counts"],
  ];
}

const readers = (model, name) => model.run.graph.edges.filter(({ producer }) => producer === name).map(({ consumer }) => consumer).join(", ") || NOTHING;

function operatorFacts(operator, window, advice, model) {
  const set = new Map(Object.entries(model.run.manager.bounds)).get(operator.name);
  const each = window?.true_per_s && window.parallelism ? window.true_per_s / window.parallelism : null;
  return [
    ["Parallelism", number(window?.parallelism ?? null), "instances that run now"],
    ["Needs", advice?.need === null || advice?.need === undefined ? NOTHING : advice.need.toFixed(2), "instances, by the policy, before rounding and bounds"],
    ["Must process", rate(window?.required_per_s), "for the sources' rates to be sustained"],
    ["Observed rate", rate(window?.observed_per_s), "records processed per second of the window"],
    ["True rate", rate(window?.true_per_s), "what all instances together could process, by their useful time"],
    ["An instance can do", rate(each), "the true rate of one"],
    ["Utilization", percent(window?.utilization), "share of the window that was useful time"],
    ["Balance", percent(window?.balance), "mean busy time of its tasks by the longest; 100 % is even"],
    ["Largest share", percent(window?.largest_share), "of the records, that its largest task or instance takes"],
    ["Skew", skewText(window), "records of its largest task or instance, in those of a mean one; 1 is even"],
    ["Without a core", percent(window?.wait_core_share), "of the time that it wanted a core"],
    ["Backlog", number(window?.backlog), "records that waited when the window ended"],
    ["Latency", duration(window?.latency_s), "how long a record takes"],
    ["Dropped as late", number(model.lateOf(operator.name)), "records that came behind its watermark, at least as many, since what is shown began"],
    ["A record costs", duration(window?.batch?.per_record_s), "busy time of one slot"],
    ["Bounds", boundsText(operator, set), set ? "set while it ran, within those of the pipeline" : "of the pipeline"],
    ["State partitions", number(operator.state_partitions), "beyond as many, instances have nothing to do"],
    ["Reads", operator.inputs.join(", ")],
  ];
}

const skewText = (window) => (window?.skew === null || window?.skew === undefined ? NOTHING : `${window.skew.toFixed(1)} ×`);

function boundsText(operator, set) {
  if (operator.fixed) return "fixed";
  const [least, most] = [set?.least ?? operator.least, set?.most ?? operator.most];
  return most === null ? `at least ${least}` : `${least} to ${most}`;
}
