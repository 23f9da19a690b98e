// Axes of a chart: round numbers for values, round times for time. Pure.

const TIME_STEPS_S = [
  1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
];

/** `{ most, ticks }` from 0 to at least `highest`; `whole` for counts, which have no halves. */
export function valueScale(highest, { whole = false, wanted = 4 } = {}) {
  const top = highest > 0 ? highest : 1;
  const rough = top / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((found) => found >= rough * (1 - 1e-9));
  if (whole) step = Math.max(1, Math.ceil(step));
  const count = Math.max(1, Math.ceil(top / step - 1e-9));
  return { most: count * step, ticks: Array.from({ length: count + 1 }, (_, i) => i * step) };
}

/**
 * Round times within a span; wall time is round where the reader's clock is. `room` is how many fit, `short` how many
 * where they are minutes, which are written without seconds.
 */
export function timeTicks(fromS, toS, { room, short = room, offsetS = 0 }) {
  const span = toS - fromS;
  if (!(span > 0)) return { step: 1, ticks: [] };
  const fits = (step) => span / step <= (step < 60 ? room : short);
  const step = TIME_STEPS_S.find(fits) ?? Math.ceil(span / short / 604_800) * 604_800;
  const ticks = [];
  for (let at = Math.ceil((fromS + offsetS) / step) * step - offsetS; at <= toS; at += step) ticks.push(at);
  return { step, ticks };
}

/** The index of the time nearest to one, in a rising list; -1 where it is empty. */
export function nearest(times, at) {
  let [low, high] = [0, times.length - 1];
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - times[low - 1] < times[low] - at ? low - 1 : low;
}
