// The rules that scaling follows, where it follows rules: seen, checked, changed, and taken back.

import { ask, refusalText, token } from "./api.js";
import { make, setHidden, setText } from "./dom.js";
import { dayAndTime, plural } from "./format.js";

export class RulesEditor {
  #loaded = null;

  constructor(say) {
    this.say = say;
    this.text = make("textarea", { id: "rules-text", rows: 14, spellcheck: "false", autocapitalize: "off", "aria-describedby": "rules-found" });
    this.found = make("div", { id: "rules-found", class: "rules-found", "aria-live": "polite" });
    this.file = make("p", { class: "hint" });
    this.who = make("input", { id: "rules-who", maxlength: 100, autocomplete: "name" });
    this.versions = make("ol");
    this.history = make("details", { id: "rules-versions", hidden: true }, make("summary", {}, "Versions"), this.versions);
    this.buttons = [
      make("button", { type: "button", class: "button", id: "rules-check", on: { click: () => this.#check() } }, "Check"),
      make("button", { type: "button", class: "button primary", id: "rules-apply", on: { click: () => this.#apply() } }, "Check and apply"),
    ];
    this.element = make("section", { hidden: true }, make("h3", {}, make("label", { for: "rules-text" }, "Rules")), this.file, this.text,
      make("div", { class: "control-row" }, ...this.buttons, make("label", { for: "rules-who" }, "Changed by"), this.who), this.found, this.history);
  }

  show(configuration) {
    setHidden(this.element, !configuration.rules_file);
    if (!this.#loaded) setText(this.file, "They are shown to those who have the token.");
  }

  /** As they are now, unless someone is changing them. */
  async load() {
    if (this.element.hidden || !token.get() || (this.#loaded && this.text.value !== this.#loaded.text)) return;
    await this.#ask(async () => {
      this.#keep(await ask("GET", "rules"));
      await this.#showVersions();
    });
  }

  async #check() {
    await this.#ask(async () => this.#tell(await ask("POST", "rules/check", { text: this.text.value })));
  }

  async #apply() {
    await this.#ask(async () => {
      // the version that was edited: what someone else has written meanwhile is not lost
      this.#keep(await ask("PUT", "rules", { text: this.text.value, version: this.#loaded?.version ?? null, ...this.#by() }));
      this.say("These rules are in force from now on.", "ok");
      await this.#showVersions();
    });
  }

  async #takeBack(version) {
    await this.#ask(async () => {
      this.#keep(await ask("POST", "rules/take-back", { version, instead_of: this.#loaded?.version ?? null, ...this.#by() }));
      this.say("The rules of that version are in force from now on.", "ok");
      await this.#showVersions();
    });
  }

  #by() {
    const who = this.who.value.trim();
    return who ? { who } : {};
  }

  /** The newest first; each of those that are not in force can be put in its place again. */
  async #showVersions() {
    const found = await ask("GET", "rules/versions");
    setHidden(this.history, !found.length);
    this.versions.replaceChildren(...found.reverse().map(({ version, at_s, who }) => make("li", {},
      make("time", {}, dayAndTime(at_s)), make("span", {}, who),
      version === this.#loaded.version ? make("span", { class: "hint" }, "in force")
        : make("button", { type: "button", class: "button", on: { click: () => this.#takeBack(version) } }, "Go back to this"))));
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
