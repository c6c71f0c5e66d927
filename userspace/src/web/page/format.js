// Numbers and elements: how bytes, objects and shares are written, and a short way to make elements.
// Text only ever becomes text nodes: names of a profile are never read as markup.

/** Units that are scaled, each so many of the one before. */
const SCALES = {
  bytes: { step: 1024, units: ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] },
  nanoseconds: { step: 1000, units: ["ns", "µs", "ms", "s"] },
};

/** A number with a unit that keeps it short; of units that are not scaled the number alone, shortened. */
export function amount(number, unit) {
  const sign = number < 0 ? "−" : "";
  let size = Math.abs(number);
  const scale = SCALES[unit];
  if (!scale) {
    return sign + (size < 1e5 ? Math.round(size).toLocaleString("en") : size < 1e6 ? `${(size / 1e3).toFixed(1)} k`
      : size < 1e9 ? `${(size / 1e6).toFixed(1)} M` : `${(size / 1e9).toFixed(1)} G`);
  }
  let at = 0;
  while (size >= scale.step && at < scale.units.length - 1) {
    size /= scale.step;
    at += 1;
  }
  return `${sign}${at === 0 ? Math.round(size) : size.toFixed(1)} ${scale.units[at]}`;
}

/** The same with a sign in any case: a difference. */
export function change(number, unit) {
  return (number > 0 ? "+" : "") + amount(number, unit);
}

/** A share of a whole. */
export function percent(part, whole) {
  if (!whole) { return "–"; }
  const share = 100 * part / whole;
  return `${share.toFixed(Math.abs(share) < 10 ? 1 : 0)} %`.replace("-", "−");
}

/** An element with properties (`class`, `data-…`, `aria-…` and `role` as attributes) and children, texts among them. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) { continue; }
    if (typeof value === "function") {
      made.addEventListener(key, value);
    } else {
      made.setAttribute(key, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
