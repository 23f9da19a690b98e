// Making and changing elements. Text goes in as text: names of operators are whatever their author wrote.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; a child that is no element becomes text, null and false nothing. */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Only where it changes: the browser then has nothing to lay out again, and screen readers nothing to say. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function setHidden(element, hidden) {
  if (element.hidden !== hidden) element.hidden = hidden;
}

/** Children made once for each key and then kept, in the order of the items. */
export class Keyed {
  constructor(host, keyOf, build) {
    Object.assign(this, { host, keyOf, build, parts: new Map() });
  }

  show(items, update = () => {}) {
    const before = this.parts;
    this.parts = new Map();
    let place = this.host.firstChild;
    for (const item of items) {
      const key = this.keyOf(item);
      const part = before.get(key) ?? this.build(item);
      before.delete(key);
      this.parts.set(key, part);
      if (part.element === place) place = place.nextSibling;
      else this.host.insertBefore(part.element, place);
      update(part, item);
    }
    for (const part of before.values()) part.element.remove();
  }
}

const HEALTH_PATHS = {
  ok: ["M8 1.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 1 1 0-13z", "M5.2 8.2l2 2l3.7-4.2"],
  strained: ["M8 1.8l6.5 11.9h-13z", "M8 6.2v3.4M8 11.5v.1"],
  behind: ["M5.3 1.5h5.4l3.8 3.8v5.4l-3.8 3.8h-5.4l-3.8-3.8v-5.4z", "M8 4.6v4.2M8 11.2v.1"],
  unknown: ["M2.5 2.5h11v11h-11z", "M6.3 6.3a1.8 1.8 0 1 1 2.5 1.7c-.6.2-.8.5-.8 1.1M8 11.3v.1"],
};
const ICON_PATHS = {
  up: ["M8 3l4.5 7h-9z"],
  down: ["M8 13l-4.5-7h9z"],
  mixed: ["M8 2.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"],
  back: ["M4.2 4.2v3.6h3.6M4.6 7.6a4.3 4.3 0 1 1-.4 3.4"],
  close: ["M4 4l8 8M12 4l-8 8"],
};

/** Health differs by shape as well as by colour: circle, triangle, octagon, square. */
export function healthIcon(health) {
  const icon = drawn("health-icon");
  setHealth(icon, health);
  return icon;
}

export function setHealth(icon, health) {
  if (icon.dataset.health === health) return;
  icon.dataset.health = health;
  icon.replaceChildren(...paths(HEALTH_PATHS[health] ?? HEALTH_PATHS.unknown));
}

export function icon(name, kind = "icon") {
  const found = drawn(`${kind} icon-${name}`);
  found.append(...paths(ICON_PATHS[name]));
  return found;
}

const drawn = (kind) => svg("svg", { viewBox: "0 0 16 16", class: kind, "aria-hidden": "true" });
const paths = (shapes) => shapes.map((d) => svg("path", { d }));
