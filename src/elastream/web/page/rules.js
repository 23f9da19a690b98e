// The rules that scaling follows, where it follows rules: seen, checked and changed.

import { ask, refusalText, token } from "./api.js";
import { make, setHidden, setText } from "./dom.js";
import { plural } from "./format.js";

export class RulesEditor {
  #loaded = null;

  constructor(say) {
    this.say = say;
    this.text = make("textarea", { id: "rules-text", rows: 14, spellcheck: "false", autocapitalize: "off", "aria-describedby": "rules-found" });
    this.found = make("div", { id: "rules-found", class: "rules-found", "aria-live": "polite" });
    this.file = make("p", { class: "hint" });
    this.buttons = [
      make("button", { type: "button", class: "button", id: "rules-check", on: { click: () => this.#check() } }, "Check"),
      make("button", { type: "button", class: "button primary", id: "rules-apply", on: { click: () => this.#apply() } }, "Check and apply"),
    ];
    this.element = make("section", { hidden: true }, make("h3", {}, make("label", { for: "rules-text" }, "Rules")), this.file, this.text,
      make("div", { class: "control-row" }, ...this.buttons), this.found);
  }

  show(configuration) {
    setHidden(this.element, !configuration.rules_file);
    if (!this.#loaded) setText(this.file, "They are shown to those who have the token.");
  }

  /** As they are now, unless someone is changing them. */
  async load() {
    if (this.element.hidden || !token.get() || (this.#loaded && this.text.value !== this.#loaded.text)) return;
    await this.#ask(async () => this.#keep(await ask("GET", "rules")));
  }

  async #check() {
    await this.#ask(async () => this.#tell(await ask("POST", "rules/check", { text: this.text.value })));
  }

  async #apply() {
    await this.#ask(async () => {
      // the version that was edited: what someone else has written meanwhile is not lost
      this.#keep(await ask("PUT", "rules", { text: this.text.value, version: this.#loaded?.version ?? null }));
      this.say("These rules are in force from now on.", "ok");
    });
  }

  #keep(rules) {
    this.#loaded = rules;
    this.text.value = rules.text;
    this.text.readOnly = !rules.editable;
    for (const button of this.buttons) button.disabled = !rules.editable;
    setText(this.file, rules.editable ? rules.file : `${rules.file}: rules in Python are a program, so they are edited in their file.`);
    this.#tell(rules.verdict);
  }

  #tell({ errors, warnings, sentences }) {
    const lines = [
      ...errors.map(({ line, text }) => entry("error", line, text)),
      ...warnings.map(({ line, text }) => entry("warning", line, text)),
      ...sentences.map((text) => entry("rule", null, text)),
    ];
    const total = errors.length ? plural(errors.length, "error") : `${plural(sentences.length, "rule")}, ${plural(warnings.length, "warning")}`;
    this.found.replaceChildren(make("p", { class: "hint" }, total), make("ul", {}, ...lines));
  }

  async #ask(work) {
    try {
      await work();
    } catch (error) {
      this.say(refusalText(error), "strained");
      if (error.errors.length) this.#tell({ errors: error.errors.map(({ line, message }) => ({ line, text: message })), warnings: [], sentences: [] });
    }
  }
}

function entry(kind, line, text) {
  return make("li", { data: { kind } }, make("span", { class: "rules-line" }, line ? `line ${line}` : ""), make("span", {}, kind === "rule" ? text : `${kind}: ${text}`));
}
