// Source and instructions of the chosen function with what each line holds; and growth over the series, drawn by the server.

import { amount, change, element } from "./format.js";
import { ask } from "./data.js";
import { get, set } from "./state.js";

let asked = 0;

/** Source of the chosen function; of the largest holder when none is. */
export async function showSource(place, profile, value) {
  const unit = profile.unit(value);
  const largest = profile.of(value).functions.reduce((most, entry) => (Math.abs(entry.own) > Math.abs(most?.own ?? 0) ? entry : most), null);
  const name = get("fn") || largest?.name;
  if (!name) {
    place.replaceChildren(element("p", { class: "empty" }, "Nothing is held: there is no function to show."));
    return;
  }
  const turn = asked += 1;
  const isCode = get("code") === "1";
  let answer;
  try {
    answer = await (await ask(isCode ? "code.json" : "source.json", { at: profile.id, base: profile.base?.id ?? "", value, function: name })).json();
  } catch (error) {
    if (error.status !== 404) { throw error; }
    answer = { function: name, files: [], parts: [], errors: [], missing: error.message };
  }
  if (turn !== asked || get("view") !== "source") { return; }
  const parts = [
    element("h2", {}, answer.function),
    element("div", { class: "tools" }, element("button", { type: "button", id: "code", click: () => set({ code: isCode ? "" : "1" }) },
      isCode ? "Source" : "Instructions")),
  ];
  if (answer.missing) { parts.push(element("p", { class: "problem" }, answer.missing)); }
  let hottest = null;
  for (const remark of answer.remarks ?? []) { parts.push(element("p", { class: "remark" }, remark)); }
  for (const error of answer.errors ?? []) { parts.push(element("p", { class: "problem" }, error)); }
  for (const part of answer.parts ?? []) {
    const [table, row] = code(part, unit);
    parts.push(table);
    hottest ??= row;
  }
  for (const file of answer.files ?? []) {
    parts.push(element("h3", {}, file.path || "unknown file"));
    if (file.error) { parts.push(element("p", { class: "problem" }, file.error)); }
    const most = Math.max(1, ...file.lines.map(([, , , whole]) => Math.abs(whole ?? 0)));
    const rows = file.lines.map(([number, text, own, whole]) => {
      const held = (held) => (held ? (profile.isDifference ? change(held, unit) : amount(held, unit)) : "");
      const row = element("tr", { class: whole ? "hot" : null, "data-line": number },
        element("td", { class: "held" }, held(own)), element("td", { class: "held" }, held(whole)),
        element("td", { class: "number" }, number > 0 ? String(number) : "?"), element("td", {}, text));
      if (whole) { row.style.backgroundSize = `${100 * Math.abs(whole) / most}% 100%`; }
      if (number === file.hottest && !hottest) { hottest = row; }
      return row;
    });
    parts.push(element("table", { class: "code" },
      element("thead", {}, element("tr", {}, element("th", {}, "line itself"), element("th", {}, "with calls"), element("th", {}, "line"), element("th", {}))),
      element("tbody", {}, ...rows)));
  }
  place.replaceChildren(element("div", { class: "source" }, ...parts));
  hottest?.scrollIntoView({ block: "center" });
}

/** Instructions of one range; and the row that holds the most. */
function code(part, unit) {
  const most = Math.max(1, ...part.lines.map(([, , , whole]) => Math.abs(whole ?? 0)));
  let hottest = null;
  const rows = part.lines.map((line) => {
    if (line.length === 1) { return element("tr", { class: "place" }, element("td", { colspan: 3 }), element("td", {}, line[0])); }
    const [address, text, own, whole] = line;
    const held = (held) => (held ? amount(held, unit) : "");
    const row = element("tr", { class: whole ? "hot" : null },
      element("td", { class: "held" }, held(own)), element("td", { class: "held" }, held(whole)),
      element("td", { class: "number" }, address), element("td", {}, text));
    if (whole) { row.style.backgroundSize = `${100 * Math.abs(whole) / most}% 100%`; }
    if (whole && Math.abs(whole) === most) { hottest = row; }
    return row;
  });
  return [element("div", {}, element("h3", {}, part.path), element("table", { class: "code" },
    element("thead", {}, element("tr", {}, element("th", {}, "itself"), element("th", {}, "with calls"), element("th", {}, "address"), element("th", {}))),
    element("tbody", {}, ...rows))), hottest];
}

/** Growth over the series. */
export async function showTimeline(place, list, value) {
  const turn = asked += 1;
  const text = await (await ask("timeline.svg", { value })).text();
  if (turn !== asked || get("view") !== "timeline") { return; }
  const svg = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  const parts = [svg];
  const kept = list.profiles.filter((entry) => !entry.isSlim);
  if (kept.length > 1) {
    const [first, last] = [kept[0], kept[kept.length - 1]];
    parts.push(element("div", { class: "buttons" }, element("button", {
      type: "button", id: "compare", click: () => set({ view: "flame", at: list.watched ? "latest" : last.id, base: first.id }),
    }, "What changed from first to last")));
  }
  place.replaceChildren(element("div", { class: "chart" }, ...parts));
}
