// Acting on the run: a drawer with everything that people may ask for, and the button that pauses. Each needs the token.

import { ask, refusalText, token } from "./api.js";
import { changesText } from "./decisions.js";
import { Keyed, byId, icon, make, setAttribute, setHidden, setText } from "./dom.js";
import { capital } from "./format.js";
import { RulesEditor } from "./rules.js";

export class Controls {
  constructor(model) {
    this.model = model;
    this.drawer = byId("controls");
    tokenOfAddress();
    addEventListener("hashchange", () => { // the address of a run that was started anew, in a tab that is open
      tokenOfAddress();
      this.show();
    });
  }

  /** Once it is known that there is something to act on: a recording never needs it. */
  #make() {
    this.made = true;
    this.pauseButtons = [byId("pause"), make("button", { type: "button", class: "button" })];
    this.rollback = make("button", { type: "button", class: "button", on: { click: () => this.#act("roll-back") } }, "Roll back");
    this.rollbackNote = make("p", { class: "hint" });
    this.dryRun = make("input", { type: "checkbox", role: "switch", id: "dry-run" });
    this.said = make("p", { class: "said", role: "status", hidden: true });
    this.token = make("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", placeholder: "printed by elastream run" });
    this.tokenNote = make("p", { class: "hint" });
    this.list = make("div", { class: "control-operators" });
    this.operators = new Keyed(this.list, ({ name }) => name, (operator) => this.#operator(operator));
    this.rules = new RulesEditor((...said) => this.#say(...said));
    this.#build();
    this.#listen();
  }

  show() {
    const { run, configuration } = this.model;
    const acts = Boolean(configuration?.acts) && Boolean(run);
    setHidden(byId("pause"), !acts);
    setHidden(byId("controls-open"), !acts);
    if (!acts) return;
    if (!this.made) this.#make();
    for (const button of this.pauseButtons) setText(button, run.manager.paused ? "Resume scaling" : "Pause scaling");
    this.dryRun.checked = run.manager.dry_run;
    setText(this.tokenNote, token.get() ? "Kept until this tab is closed." : "Without it nothing can be changed from here.");
    this.#showRollback();
    if (run.graph) {
      const scaled = this.model.scaled.filter(({ fixed }) => !fixed);
      this.operators.show(scaled, (part, operator) => part.show(operator, this.model.windowOf(operator.name), run.manager));
    }
    this.rules.show(configuration);
  }

  #showRollback() {
    const last = [...this.model.decisions.values()].findLast(({ outcome }) => outcome === "done");
    const can = last && last.kind !== "rollback";
    this.rollback.disabled = !can;
    setText(this.rollbackNote, can ? `Takes back: ${changesText(last)}. It is not proposed again until the load changes.` : last ? "The last action was a rollback itself." : "There is no action to take back.");
  }

  #build() {
    const close = make("button", { type: "button", class: "button icon-button", "aria-label": "Close", on: { click: () => this.drawer.close() } }, icon("close"));
    const tokenForm = make("form", { class: "control-row", on: { submit: (event) => this.#keepToken(event) } },
      make("label", { for: "token" }, "Token"), this.token, make("button", { class: "button" }, "Use"));
    this.drawer.append(
      make("div", { class: "drawer-head" }, make("h2", { id: "controls-title" }, "Controls"), close),
      this.said,
      make("section", {}, tokenForm, this.tokenNote),
      make("section", {},
        make("h3", {}, "Scaling"),
        make("div", { class: "control-row" }, this.pauseButtons[1],
          make("label", { class: "switch" }, this.dryRun, make("span", {}, "Dry run: tell, but do nothing"))),
        make("div", { class: "control-row" }, this.rollback, this.rollbackNote)),
      make("form", { class: "control-section", novalidate: true, on: { submit: (event) => this.#scale(event) } },
        make("h3", {}, "Operators"),
        make("p", { class: "hint" }, "A number of instances by hand, all of them in one action; and the bounds that scaling keeps to, empty for the pipeline's own."),
        this.list,
        make("div", { class: "control-row" }, make("button", { class: "button primary", id: "scale" }, "Scale by hand"))),
      this.rules.element);
  }

  #listen() {
    byId("controls-open").addEventListener("click", () => this.#open());
    this.drawer.addEventListener("click", (event) => event.target === this.drawer && this.drawer.close());
    for (const button of this.pauseButtons) button.addEventListener("click", () => this.#pause());
    this.dryRun.addEventListener("change", () => this.#setDryRun());
  }

  #open(said = null) {
    if (!this.drawer.open) this.drawer.showModal();
    this.#say(said, "strained");
    this.rules.load();
    if (!token.get()) this.token.focus();
  }

  #keepToken(event) {
    event.preventDefault();
    token.set(this.token.value.trim());
    this.token.value = "";
    this.#say(token.get() ? "The token is used from now on." : "The token is forgotten.", "ok");
    this.show();
    this.rules.load();
  }

  #pause() {
    const { paused } = this.model.run.manager;
    return this.#act(paused ? "resume" : "pause");
  }

  async #setDryRun() {
    await this.#act("dry-run", { on: this.dryRun.checked });
    this.dryRun.checked = this.model.run.manager.dry_run;
  }

  #scale(event) {
    event.preventDefault();
    const wanted = [...this.operators.parts.entries()].map(([name, part]) => [name, part.count.value.trim()]).filter(([, value]) => value !== "");
    if (!wanted.length) return this.#say("Give at least one operator a number of instances.", "strained");
    const parallelism = Object.fromEntries(wanted.map(([name, value]) => [name, Number(value)]));
    return this.#act("scale", { parallelism }).then((done) => {
      if (done) for (const part of this.operators.parts.values()) part.count.value = "";
    });
  }

  #operator({ name, least, most }) {
    const field = (label, attributes = {}) => make("input", { type: "number", inputmode: "numeric", min: 1, step: 1, "aria-label": `${label} of ${name}`, ...attributes });
    const now = make("span", { class: "control-now" });
    const count = field("Instances", { placeholder: "scale to" });
    const low = field("Least", { placeholder: String(least) });
    const high = field("Most", { placeholder: most === null ? "any" : String(most) });
    const set = make("button", { type: "button", class: "button", "aria-label": `Set the bounds of ${name}`, on: { click: () => this.#setBounds(name, low, high) } }, "Set bounds");
    const element = make("div", { class: "control-operator", role: "group", "aria-label": name },
      make("span", { class: "control-name", title: name }, name), now,
      make("label", {}, "Scale to", count), make("label", {}, "Least", low), make("label", {}, "Most", high), set);
    let known = "";
    return {
      element, count,
      show(_, window, { bounds }) {
        setText(now, `×${window?.parallelism ?? "?"}`);
        setAttribute(count, "placeholder", window?.parallelism ?? "");
        const found = new Map(Object.entries(bounds)).get(name) ?? { least: null, most: null };
        if (JSON.stringify(found) === known) return; // what someone is typing stays
        known = JSON.stringify(found);
        low.value = found.least ?? "";
        high.value = found.most ?? "";
      },
    };
  }

  #setBounds(name, low, high) {
    const bound = ({ value }) => (value.trim() === "" ? null : Number(value));
    return this.#act("bounds", { operator: name, least: bound(low), most: bound(high) });
  }

  async #act(what, body) {
    try {
      const answer = await ask("POST", `actions/${what}`, body);
      this.#say(`${capital(answer.what)}.`, answer.done ? "ok" : "strained");
      return true;
    } catch (error) {
      this.#open(refusalText(error));
      return false;
    }
  }

  #say(text, tone = "ok") {
    setHidden(this.said, !text);
    setText(this.said, text ?? "");
    this.said.dataset.tone = tone;
  }
}

/** The address that `elastream run` prints may carry the token behind a #, which no browser sends anywhere. */
function tokenOfAddress() {
  const found = /^#token=([!-~]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname);
  token.set(found[1]);
}
