// Numbers, durations and times as people say them. What nobody measured is a dash, never a zero.

export const NOTHING = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);
// made when they are first needed: together they take longer than anything else at the start
const lazily = (make) => {
  let made;
  return { format: (value) => (made ??= make()).format(value) };
};
const grouped = lazily(() => new Intl.NumberFormat("en", { maximumFractionDigits: 0 }));
const significant = lazily(() => new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }));
const SUFFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Whole numbers with separators from 100 up, three digits below; from 100,000 up 123 k, 4.56 M. */
export function number(value) {
  if (!known(value)) return NOTHING;
  const size = Math.abs(value);
  if (size < 100) return significant.format(value);
  if (size < 99_999.5) return grouped.format(value);
  const [unit, suffix] = SUFFIXES.find(([least]) => size >= least * 0.9995);
  return `${significant.format(value / unit)} ${suffix}`;
}

export const rate = (value) => (known(value) ? `${number(value)}/s` : NOTHING);

export function percent(value) {
  if (!known(value)) return NOTHING;
  const found = value * 100;
  return found > 0 && found < 1 ? "< 1 %" : `${Math.floor(found + 0.5)} %`;
}

/** A share of the required rate: what is short of everything is never shown as 100 %. */
export function share(value) {
  if (!known(value)) return NOTHING;
  return value < 1 && value > 0.995 ? `${(Math.floor(value * 1000) / 10).toFixed(1)} %` : percent(value);
}

export function duration(seconds) {
  if (!known(seconds)) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${significant.format(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${significant.format(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 119.5) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** Instances over time, as what one would be billed for. */
export function instanceTime(seconds) {
  if (!known(seconds)) return NOTHING;
  if (seconds < 120) return `${number(seconds)} instance-seconds`;
  if (seconds < 7200) return `${number(seconds / 60)} instance-minutes`;
  return `${number(seconds / 3600)} instance-hours`;
}

const BYTES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

export function bytes(value) {
  if (!known(value)) return NOTHING;
  const [unit, suffix] = BYTES.find(([least]) => value >= least) ?? [1, "B"];
  return `${significant.format(value / unit)} ${suffix}`;
}

export const plural = (count, word) => `${grouped.format(count)} ${word}${count === 1 ? "" : "s"}`;

// Times of a run on Spark are seconds since 1970, those of a simulated one seconds since its start.
const WALL_S = 1e8;
export const isWall = (atS) => atS > WALL_S;
const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const clock = lazily(() => new Intl.DateTimeFormat(undefined, CLOCK));
const day = lazily(() => new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }));

/** 14:03:20, or 12:30 and 1:05:00 since the start of a simulated run. */
export function time(atS) {
  if (!known(atS)) return NOTHING;
  return isWall(atS) ? clock.format(new Date(atS * 1000)) : elapsed(atS);
}

export function dayAndTime(atS) {
  return isWall(atS) ? `${day.format(new Date(atS * 1000))}, ${time(atS)}` : `${time(atS)} after the start`;
}

function elapsed(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** On an axis, where marks are `stepS` apart. */
export function tick(atS, stepS) {
  if (!isWall(atS)) return elapsed(atS);
  if (stepS >= 86_400) return day.format(new Date(atS * 1000));
  const text = clock.format(new Date(atS * 1000));
  return stepS >= 60 ? text.slice(0, 5) : text;
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
