// The line that answers first: how much, how sure, what was lost; and the side panel: top holders, or one function.

import { amount, change, element, percent } from "./format.js";
import { get, set } from "./state.js";

const HOLDERS = 12;

/** Fills the summary. */
export function showSummary(place, profile, value) {
  const unit = profile.unit(value);
  const { total } = profile.of(value);
  const { about } = profile;
  const isBytes = unit === "bytes";
  const side = value < 2 ? 0 : 1;
  const words = about.isHeap ? `${isBytes ? "" : "objects "}${["in use", "in use", "allocated", "allocated"][value]}` : about.values[value].title;
  const error = isBytes && isSampled(about) && about.totals[value] > 0 ? about.errors[side] / about.totals[value] : 0;
  const facts = [];
  const before = profile.isDifference ? profile.base.about : null;
  if (profile.isDifference) {
    // Samples that both hold cancel out, so it is at most this.
    const unsure = isBytes ? Math.hypot(about.errors[side], before.errors[side]) : 0;
    const sure = unsure > 0 ? ` ± at most ${amount(unsure, unit)}` : "";
    facts.push(element("span", { class: `total ${total < 0 ? "shrank" : "grew"}` }, change(total, unit),
      element("small", {}, ` ${words}${sure}, from ${amount(before.totals[value], unit)} to ${amount(about.totals[value], unit)}`)));
  } else {
    const sure = error > 0 ? ` ± ${percent(error, 1)}` : "";
    facts.push(element("span", { class: "total", id: "total" }, amount(total, unit),
      element("small", {}, ` ${words}${sure}`)));
  }
  if (about.isHeap) {
    const [now, then] = [basis(about, side), before ? basis(before, side) : null];
    facts.push(element("span", { class: "fact" }, then === null || then === now ? now : `${now}; before: ${then}`));
  }
  if (value >= 2 && !about.hasCumulative) {
    facts.push(element("span", { class: "fact" }, "no cumulative counts: run the program with MALLOC_CONF=prof_accum:true"));
  }
  facts.push(about.losses.length === 0
    ? element("span", { class: "fact" }, "nothing lost")
    : list("losses", `${about.losses.length === 1 ? "one kind of loss" : `${about.losses.length} kinds of losses`}`, about.losses));
  const remarks = [...about.notes, ...about.unresolved];
  if (profile.cut > 0) { remarks.push(`stacks below ${percent(profile.cut, 1)} of the whole count to their callers here`); }
  if (remarks.length > 0) { facts.push(list("notes", `${remarks.length} remark${remarks.length > 1 ? "s" : ""}`, remarks)); }
  if (about.program) { facts.push(element("span", { class: "fact" }, about.program)); }
  // What was opened to be read stays open when a reading comes in.
  const open = [...place.querySelectorAll("details[open]")].map((details) => details.className);
  place.replaceChildren(...facts);
  place.querySelectorAll("details").forEach((details) => { details.open = open.includes(details.className); });
}

function isSampled(about) {
  return Math.max(about.coarsest, about.interval) > 1;
}

/** What the numbers of a profile rest on. */
function basis(about, side) {
  if (!isSampled(about)) { return "every allocation counted"; }
  const coarsest = Math.max(about.coarsest, about.interval);
  const range = about.interval < coarsest ? `${amount(Math.max(about.interval, 1), "bytes")} to ` : "";
  const count = about.samples[side];
  return `estimated from ${count.toLocaleString("en")} sample${count === 1 ? "" : "s"}, one per ${range}${amount(coarsest, "bytes")}`;
}

function list(kind, title, lines) {
  return element("details", { class: kind }, element("summary", {}, title),
    element("ul", {}, ...lines.map((line) => element("li", {}, line))));
}

/** Fills the side panel: the chosen function, or the largest holders. */
export function showSide(place, profile, value) {
  const chosen = profile.functions.indexOf(get("fn"));
  place.replaceChildren(...(chosen >= 0 ? one(profile, value, chosen) : holders(profile, value)));
  place.setAttribute("aria-label", chosen >= 0 ? "Function" : "Holders");
}

function holders(profile, value) {
  const { functions, total } = profile.of(value);
  const top = functions.filter((entry) => entry.own !== 0)
    .sort((a, b) => Math.abs(b.own) - Math.abs(a.own) || a.name.localeCompare(b.name)).slice(0, HOLDERS);
  const whole = profile.isDifference ? Math.max(...top.map((entry) => Math.abs(entry.own)), 1) : total;
  return [
    element("h2", {}, profile.isDifference ? "What changed the most" : "Who holds it"),
    top.length === 0 ? element("p", {}, "Nothing is held.") : rows(profile, top.map((entry) => ({ ...entry, number: entry.own })), whole, value),
    element("h3", {}, "Press a name for callers, callees and source."),
  ];
}

function one(profile, value, index) {
  const unit = profile.unit(value);
  const sums = profile.of(value);
  const entry = sums.functions[index];
  const { callers, callees } = profile.neighbours(index, value);
  const whole = Math.abs(sums.total) || 1;
  const show = (number) => `${profile.isDifference ? change(number, unit) : amount(number, unit)}  ${percent(number, whole)}`;
  return [
    element("h2", { id: "chosen" }, entry.name),
    element("dl", {}, element("dt", {}, "itself"), element("dd", {}, show(entry.own)),
      element("dt", {}, "with what it calls"), element("dd", {}, show(entry.whole))),
    element("div", { class: "buttons" },
      element("button", { type: "button", id: "to-source", click: () => set({ view: "source" }) }, "Source"),
      element("button", { type: "button", click: () => set({ search: `^${escape(entry.name)}$` }) }, "Find"),
      element("button", { type: "button", id: "to-holders", click: () => set({ fn: "" }) }, "All holders")),
    element("h3", {}, "Called by"),
    callers.length ? rows(profile, callers.slice(0, HOLDERS), whole, value) : element("p", {}, "no one"),
    element("h3", {}, "Calls"),
    callees.length ? rows(profile, callees.slice(0, HOLDERS), whole, value) : element("p", {}, "no one that allocates"),
  ];
}

/** A text as a pattern that matches just it. */
export function escape(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function rows(profile, entries, whole, value) {
  const unit = profile.unit(value);
  const items = entries.map(({ name, number, index }) => {
    const text = profile.isDifference ? change(number, unit) : amount(number, unit);
    const button = element("button", { type: "button", title: name, disabled: index < 0, click: () => set({ fn: name }) },
      element("span", { class: `amount ${profile.isDifference ? (number > 0 ? "grew" : "shrank") : ""}` }, text),
      element("span", { class: "name" }, name));
    button.style.backgroundSize = `${Math.min(100, 100 * Math.abs(number) / (whole || 1))}% 100%`;
    return element("li", {}, button);
  });
  return element("ul", { class: "rows" }, ...items);
}
