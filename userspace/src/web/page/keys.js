// Keys of the page. Nothing is taken while someone types into a field or holds a modifier.

import { flameKey } from "./flame.js";
import { graphKey } from "./graph.js";
import { get, set } from "./state.js";

export const VIEWS = ["flame", "graph", "table", "source", "timeline"];

/** Starts listening. */
export function listenKeys({ search, help, theme }) {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "Escape") {
      if (help.open) { return; }
      if (isTyping) { event.target.blur(); }
      if (get("zoom")) { set({ zoom: "" }); } else if (get("search")) { set({ search: "" }); } else { set({ fn: "" }); }
      return;
    }
    if (isTyping || help.open || event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (taken(event)) { event.preventDefault(); }
  });

  function taken(event) {
    const view = get("view") || "flame";
    const { key } = event;
    if (key >= "1" && key <= "5") { set({ view: VIEWS[Number(key) - 1] }); return true; }
    if (key === "/") { search.focus(); search.select(); return true; }
    if (key === "?") { help.showModal(); return true; }
    if (key === "d") { theme(); return true; }
    if (key === "s") { set({ view: "source" }); return true; }
    if (key === "i" && view === "flame") { set({ down: get("down") ? "" : "1" }); return true; }
    if (view === "flame" && !event.target.closest("[role=tab]")) { return flameKey(key); }
    if (view === "graph") { return graphKey(key); }
    return false;
  }
}
