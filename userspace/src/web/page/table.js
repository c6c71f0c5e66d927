// All functions as a table, sorted by any column; a name leads to its source.

import { amount, change, element, percent } from "./format.js";
import { pattern } from "./data.js";
import { get, set } from "./state.js";

const ROWS_MOST = 1000;
const COLUMNS = [
  { key: "own", title: "Itself", number: (entry) => entry.own },
  { key: "whole", title: "With what it calls", number: (entry) => entry.whole },
  { key: "name", title: "Function", number: null },
];

/** Draws into a place. */
export function showTable(place, profile, value) {
  const unit = profile.unit(value);
  const { functions, total } = profile.of(value);
  const regex = pattern(get("search"));
  const [key, direction] = (get("sort") || "own-down").split("-");
  const rows = functions.filter((entry) => (entry.own !== 0 || entry.whole !== 0) && (!regex || regex.test(entry.name)));
  const size = (number) => (profile.isDifference ? Math.abs(number) : number);
  rows.sort((a, b) => {
    const order = key === "name" ? a.name.localeCompare(b.name) : size(b[key]) - size(a[key]) || size(b.whole) - size(a.whole) || a.name.localeCompare(b.name);
    return direction === "up" ? -order : order;
  });
  const show = (number) => (profile.isDifference ? change(number, unit) : amount(number, unit));
  const head = [];
  for (const column of COLUMNS) {
    const isSorted = column.key === key;
    const next = isSorted && direction === "down" ? "up" : "down";
    const mark = isSorted ? (direction === "down" ? " ▼" : " ▲") : "";
    head.push(element("th", { scope: "col", "aria-sort": isSorted ? (direction === "down" ? "descending" : "ascending") : "none" },
      element("button", { type: "button", "data-sort": column.key, click: () => set({ sort: `${column.key}-${next}` }) }, column.title + mark)));
    if (column.number) { head.push(element("th", { scope: "col" }, "%")); }
  }
  const body = rows.slice(0, ROWS_MOST).map((entry) => element("tr", { class: entry.name === get("fn") ? "chosen" : null },
    element("td", {}, show(entry.own)), element("td", {}, percent(entry.own, total)),
    element("td", {}, show(entry.whole)), element("td", {}, percent(entry.whole, total)),
    element("td", {}, element("button", { type: "button", class: "link", click: () => set({ fn: entry.name, view: "source" }) }, entry.name))));
  place.replaceChildren(
    rows.length === 0 ? element("p", { class: "empty" }, "No function matches.")
      : element("table", { class: "functions" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
  if (rows.length > ROWS_MOST) {
    place.append(element("p", { class: "empty" }, `${rows.length - ROWS_MOST} more: search to see them.`));
  }
}
