// Where the operators of a graph are drawn, and the lines between them. Pure: sizes in, positions out.
//
// Operators stand in layers, each after all that it reads from. Layers go from left to right; where they do not
// all fit beside each other they go on in a further band below, as lines of text do. On a narrow page every operator
// has a line of its own.

const NARROW = 560;
const CARD = { width: 226, height: 134 };
const GAP = { x: 44, y: 18 };
const SMALL = 120; // of a source, where every operator has a line of its own
const LANE = 9;
const BAND = 26; // between bands, besides the lanes of the lines that pass there
const SIDE = 26; // room for lines beside the first and the last column
const RADIUS = 8;

/** `{ height, cards: Map(name → { x, y, width, height }), lines: [path] }` */
export function layout(operators, edges, width) {
  if (operators.length === 0) return { height: 0, cards: new Map(), lines: [] };
  return width < NARROW ? stacked(operators, edges, width) : banded(operators, edges, width);
}

function layersOf(operators, edges) {
  const depth = new Map();
  for (const { name, inputs } of operators) {
    depth.set(name, Math.max(0, ...inputs.map((input) => (depth.get(input) ?? -1) + 1)));
  }
  const layers = [];
  for (const { name } of operators) (layers[depth.get(name)] ??= []).push(name);
  return { layers: uncrossed(layers, edges), depth };
}

/** A few rounds of moving each operator to the mean place of its neighbours: fewer lines cross. */
function uncrossed(layers, edges) {
  const place = new Map();
  const settle = () => layers.forEach((names) => names.forEach((name, i) => place.set(name, (i + 0.5) / names.length)));
  settle();
  for (let round = 0; round < 6; round++) {
    const [own, other] = round % 2 ? ["producer", "consumer"] : ["consumer", "producer"];
    for (const names of layers) {
      const wanted = new Map(names.map((name) => [name, mean(edges, own, other, name, place)]));
      names.sort((a, b) => wanted.get(a) - wanted.get(b));
    }
    settle();
  }
  return layers;
}

function mean(edges, own, other, name, place) {
  const found = edges.filter((edge) => edge[own] === name).map((edge) => place.get(edge[other]));
  return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : place.get(name);
}

function banded(operators, edges, width) {
  const { layers, depth } = layersOf(operators, edges);
  const wide = (room) => Math.max(1, Math.floor((room + GAP.x) / (CARD.width + GAP.x)));
  const side = layers.length > wide(width) ? SIDE : 0;
  const room = width - 2 * side;
  const bands = Math.ceil(layers.length / wide(room));
  const perBand = Math.ceil(layers.length / bands);
  const column = (name) => depth.get(name) % perBand;
  const band = (name) => Math.floor(depth.get(name) / perBand);
  // room is given to the cards, up to a third more, then to the gaps, and then to both sides
  const cardWidth = Math.min(CARD.width * 1.35, (room - (perBand - 1) * GAP.x) / perBand);
  const gap = perBand > 1 ? Math.min(140, (room - perBand * cardWidth) / (perBand - 1)) : 0;
  const left = side + (room - perBand * cardWidth - (perBand - 1) * gap) / 2;
  const tall = (names) => names.length * CARD.height + (names.length - 1) * GAP.y;

  const far = edges.filter(({ producer, consumer }) => {
    return band(producer) !== band(consumer) || column(consumer) - column(producer) > 1;
  });
  const lanes = new Map(); // for each band, how many lines pass above it
  for (const { consumer } of far) lanes.set(band(consumer), (lanes.get(band(consumer)) ?? 0) + 1);

  const cards = new Map();
  const tops = [];
  let top = 0;
  for (let index = 0; index < bands; index++) {
    top += (lanes.get(index) ?? 0) * LANE + (index > 0 ? BAND : 0);
    tops.push(top);
    const here = layers.slice(index * perBand, (index + 1) * perBand);
    const height = Math.max(...here.map(tall));
    here.forEach((names, place) => names.forEach((name, row) => {
      const y = top + (height - tall(names)) / 2 + row * (CARD.height + GAP.y);
      cards.set(name, { x: left + place * (cardWidth + gap), y, width: cardWidth, height: CARD.height });
    }));
    top += height;
  }
  const used = new Map();
  const lines = edges.map(({ producer, consumer }) => {
    const [from, to] = [cards.get(producer), cards.get(consumer)];
    if (!far.some((edge) => edge.producer === producer && edge.consumer === consumer)) {
      return across(from, to);
    }
    const lane = used.get(band(consumer)) ?? 0;
    used.set(band(consumer), lane + 1);
    const y = tops[band(consumer)] - BAND / 2 - lane * LANE;
    return around(from, to, Math.max(2, y), lane);
  });
  return { height: top, cards, lines };
}

function across(from, to) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
  const bend = Math.max(12, (x2 - x1) / 2);
  return `M${r(x1)} ${r(y1)}C${r(x1 + bend)} ${r(y1)} ${r(x2 - bend)} ${r(y2)} ${r(x2)} ${r(y2)}`;
}

/** Through the gaps between columns and bands, where no cards are. */
function around(from, to, y, lane) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
  const [out, back] = [x1 + 12 + (lane % 3) * 5, x2 - 14 - (lane % 3) * 5];
  return rounded([[x1, y1], [out, y1], [out, y], [back, y], [back, y2], [x2, y2]]);
}

function stacked(operators, edges, width) {
  const index = new Map(operators.map(({ name }, i) => [name, i]));
  const far = edges.filter(({ producer, consumer }) => index.get(consumer) - index.get(producer) > 1);
  const gutter = far.length ? Math.min(5, far.length) * LANE + 8 : 0;
  const gap = 24;
  const cards = new Map();
  let y = 0;
  for (const { name, kind } of operators) {
    const height = kind === "source" ? SMALL : CARD.height;
    cards.set(name, { x: gutter, y, width: width - gutter, height });
    y += height + gap;
  }
  const lines = edges.map(({ producer, consumer }) => {
    const [from, to] = [cards.get(producer), cards.get(consumer)];
    const lane = far.findIndex((edge) => edge.producer === producer && edge.consumer === consumer);
    if (lane < 0) {
      const x = from.x + from.width / 2;
      return `M${r(x)} ${r(from.y + from.height)}V${r(to.y)}`;
    }
    const x = gutter - 8 - (lane % 5) * LANE;
    const [y1, y2] = [from.y + from.height * 0.62, to.y + to.height * 0.38];
    return rounded([[from.x, y1], [x, y1], [x, y2], [to.x, y2]]);
  });
  return { height: y - gap, cards, lines };
}

/** A line through points, horizontal and vertical in turn, with round corners. */
function rounded(points) {
  let path = `M${r(points[0][0])} ${r(points[0][1])}`;
  for (let i = 1; i < points.length - 1; i++) {
    const [[x0, y0], [x, y], [x1, y1]] = [points[i - 1], points[i], points[i + 1]];
    const before = Math.min(RADIUS, (Math.abs(x - x0) + Math.abs(y - y0)) / 2);
    const after = Math.min(RADIUS, (Math.abs(x1 - x) + Math.abs(y1 - y)) / 2);
    path += `L${r(x - Math.sign(x - x0) * before)} ${r(y - Math.sign(y - y0) * before)}`;
    path += `Q${r(x)} ${r(y)} ${r(x + Math.sign(x1 - x) * after)} ${r(y + Math.sign(y1 - y) * after)}`;
  }
  return `${path}L${r(points.at(-1)[0])} ${r(points.at(-1)[1])}`;
}

const r = (value) => Math.round(value * 10) / 10;
