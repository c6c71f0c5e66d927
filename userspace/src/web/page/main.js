// Start of the page: what is asked, when the views are drawn again, and the controls at the top.

import { ask, Profile } from "./data.js";
import { amount, element } from "./format.js";
import { found, showFlame } from "./flame.js";
import { showGraph } from "./graph.js";
import { listenKeys, VIEWS } from "./keys.js";
import { showSource, showTimeline } from "./source.js";
import { get, listen, set } from "./state.js";
import { showSide, showSummary } from "./summary.js";
import { showTable } from "./table.js";

const REFRESH = 2000;
const $ = (id) => document.getElementById(id);

let list = null;
let profile = null;
let loaded = "";

function value() {
  const known = profile ? profile.about.values.length : 4;
  return Math.min(known - 1, Math.max(0, Number(get("value")) || 0));
}

/** The profiles that the address names: ids, or the newest and the base of the command line. */
function chosen() {
  const at = get("at") || "latest";
  const base = get("base") === "none" ? "" : get("base") || (list.base ?? "");
  return { at, base: String(base) };
}

/** Asks for the profile that is to be shown, unless it is there already. */
async function load() {
  const { at, base } = chosen();
  const newest = list.profiles[list.profiles.length - 1];
  const id = at === "latest" ? newest?.id : at;
  const key = `${id} ${base}`;
  if (key === loaded) { return false; }
  profile = new Profile(await (await ask("profile.json", { at, base })).json());
  loaded = key;
  return true;
}

function draw() {
  const view = VIEWS.includes(get("view")) ? get("view") : "flame";
  document.querySelectorAll("[role=tab]").forEach((tab) => {
    const isSelected = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(isSelected));
    tab.tabIndex = isSelected ? 0 : -1;
  });
  $("view").setAttribute("aria-labelledby", `tab-${view}`);
  $("tab-timeline").hidden = list.profiles.length < 2;
  $("title").textContent = list.title;
  document.title = `${list.title}: ${amount(profile.about.totals[value()], profile.unit(value()))}`;
  showSummary($("summary"), profile, value());
  showSide($("side"), profile, value());
  $("found").textContent = found(profile, value());
  if (document.activeElement !== $("search")) { $("search").value = get("search"); }
  $("value").value = String(value());
  const focused = document.activeElement?.dataset?.node;
  const place = $("view");
  const scrolled = place.scrollTop;
  const views = {
    flame: () => showFlame(place, profile, value()),
    graph: () => showGraph(place, profile, value()),
    table: () => showTable(place, profile, value()),
    source: () => showSource(place, profile, value()),
    timeline: () => showTimeline(place, list, value()),
  };
  const isSame = place.dataset.view === view;
  place.dataset.view = view;
  Promise.resolve(views[view]()).then(() => {
    if (isSame && view !== "source") { place.scrollTop = scrolled; }
    if (focused !== undefined) { place.querySelector(`[data-node="${focused}"]`)?.focus({ preventScroll: true }); }
    document.documentElement.dataset.drawn = view;
    fail(null);
  }).catch(fail);
}

/** Shows an error, or takes it away. */
function fail(error) {
  $("message").hidden = !error;
  $("message").textContent = error ? error.message : "";
}

function controls() {
  const option = (entry) => element("option", { value: entry.id }, entry.name);
  const kept = list.profiles.filter((entry) => !entry.isSlim);
  const { at, base } = chosen();
  const newest = list.watched || list.ended ? [element("option", { value: "latest" }, "newest")] : [];
  $("at").replaceChildren(...newest, ...kept.map(option));
  $("at").value = at === "latest" && newest.length === 0 ? String(kept[kept.length - 1]?.id) : at;
  $("base").replaceChildren(element("option", { value: "none" }, "nothing"), ...kept.map(option));
  $("base").value = base === "" ? "none" : base;
  $("value").replaceChildren(...profile.about.values.map(({ title }, at) => element("option", { value: at }, title)));
  $("value").value = String(value());
  $("live").hidden = !list.watched && !list.ended;
  $("live").classList.toggle("ended", Boolean(list.ended));
  $("live-text").textContent = list.ended ?? `live, ${list.profiles.length} readings`;
}

async function refresh() {
  list = await (await ask("list.json")).json();
  const isNew = await load();
  controls();
  if (isNew || get("view") === "timeline") { draw(); }
}

function theme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
}

function wire() {
  $("at").addEventListener("change", (event) => set({ at: event.target.value }));
  $("base").addEventListener("change", (event) => set({ base: event.target.value, zoom: "" }));
  $("value").addEventListener("change", (event) => set({ value: event.target.value === "0" ? "" : event.target.value }));
  $("search").addEventListener("input", (event) => set({ search: event.target.value }, true));
  $("search").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.target.blur(); } });
  $("theme").addEventListener("click", theme);
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  document.querySelectorAll("[role=tab]").forEach((tab) => {
    tab.addEventListener("click", () => set({ view: tab.dataset.view }));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) { return; }
      const tabs = [...document.querySelectorAll("[role=tab]:not([hidden])")];
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
      event.preventDefault();
    });
  });
  listenKeys({ search: $("search"), help: $("help"), theme });
  let pending = 0;
  window.addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(draw, 150);
  });
  listen((names) => {
    const needsProfile = names.has("at") || names.has("base");
    (needsProfile ? load() : Promise.resolve()).then(() => { controls(); draw(); }).catch(fail);
  });
}

async function start() {
  list = await (await ask("list.json")).json();
  await load();
  wire();
  controls();
  draw();
  const again = async () => {
    if (!list.watched) { return; }
    try { await refresh(); } catch (error) { fail(error); }
    setTimeout(again, REFRESH);
  };
  setTimeout(again, REFRESH);
}

start().catch(fail);
