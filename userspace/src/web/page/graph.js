// The call graph, laid out by the server: zoom with the wheel or + and −, move by dragging or arrows, choose a function.
// Tab leads to a box; from there arrows lead to the largest caller or callee and to the boxes beside, Enter chooses.

import { element } from "./format.js";
import { ask, pattern } from "./data.js";
import { get, set } from "./state.js";

let view = null;
let asked = 0;

/** Draws into a place; the same graph is not asked twice. */
export async function showGraph(place, profile, value) {
  const parameters = { at: profile.id, base: profile.base?.id ?? "", value, focus: get("focus"), boxes: get("boxes") || 80 };
  const key = JSON.stringify(parameters);
  if (view?.key === key && view.box.isConnected) {
    mark();
    if (view.isWhole) { whole(); }
    return;
  }
  const turn = asked += 1;
  if (!view?.box.isConnected) { place.replaceChildren(element("p", { class: "empty" }, "Laying out …")); }
  const answer = await (await ask("graph.json", parameters)).json();
  if (turn !== asked || get("view") !== "graph") { return; }
  // Parsed as XML: it holds shapes and texts only, and a script in it would not run.
  const svg = document.importNode(new DOMParser().parseFromString(answer.svg, "image/svg+xml").documentElement, true);
  const boxes = element("select", { id: "boxes", change: (event) => set({ boxes: event.target.value }) },
    ...[20, 40, 80, 200, 500, 2000].map((count) => element("option", { value: count, selected: count === Number(parameters.boxes) }, String(count))));
  const tools = element("div", { class: "tools" },
    element("button", { type: "button", id: "nearer", click: () => zoom(0.8) }, "+"),
    element("button", { type: "button", click: () => zoom(1.25) }, "−"),
    element("button", { type: "button", click: whole }, "Whole"),
    element("label", {}, "at most ", boxes, " functions "),
    element("button", { type: "button", id: "focus", hidden: !get("fn"), click: () => set({ focus: get("focus") ? "" : exact(get("fn")) }) },
      get("focus") ? "All stacks" : "Only stacks through the chosen function"));
  const before = view && focused() ? nameOf(focused()) : null;
  const box = element("div", { class: "graph" }, tools, svg);
  place.replaceChildren(box);
  const size = { width: answer.width, height: answer.height };
  const nodes = new Map([...svg.querySelectorAll(".node")].map((node) => [Number(node.dataset.key), node]));
  view = { key, box, svg, nodes, names: answer.names, calls: answer.calls, size, seen: { x: 0, y: 0, ...size } };
  svg.setAttribute("role", "group");
  nodes.forEach((node) => {
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", node.querySelector("title").textContent.replaceAll("\n", ", "));
  });
  mark();
  const again = before !== null && [...nodes.values()].find((node) => nameOf(node) === before);
  if (again) { again.focus({ preventScroll: true }); }
  whole();
  drag(svg);
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(1.0015 ** event.deltaY, point(event));
  }, { passive: false });
  svg.addEventListener("click", (event) => {
    const node = event.target.closest(".node");
    if (node && !view.moved) { set({ fn: nameOf(node) }); }
  });
}

function nameOf(node) {
  return view.names[Number(node.dataset.key)];
}

/** The box that has the focus. */
function focused() {
  const node = document.activeElement?.closest(".node");
  return node && view.svg.contains(node) ? node : null;
}

function exact(name) {
  return `^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;
}

/** Shows what is chosen and what matches the search. */
function mark() {
  const regex = pattern(get("search"));
  view.svg.querySelectorAll(".node").forEach((node) => {
    const name = nameOf(node);
    node.classList.toggle("chosen", name === get("fn"));
    node.setAttribute("aria-pressed", String(name === get("fn")));
    node.classList.toggle("miss", Boolean(regex) && !regex.test(name));
  });
  // One box is in the order of Tab: that with the focus, the chosen one, else the first, which holds the most.
  const [first] = view.nodes.values();
  roving(focused() ?? view.svg.querySelector(".node.chosen") ?? first);
  view.svg.querySelectorAll(".edge").forEach((edge) => edge.classList.toggle("miss", Boolean(regex)));
  const focus = view.box.querySelector("#focus");
  focus.hidden = !get("fn") && !get("focus");
  focus.textContent = get("focus") ? "All stacks" : "Only stacks through the chosen function";
}

function show() {
  const { x, y, width, height } = view.seen;
  view.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
}

/** The whole graph, but never so small that nothing can be read: then its top. */
function whole() {
  const { width, height } = view.size;
  const room = view.svg.getBoundingClientRect();
  const scale = Math.min(1.25, Math.max(0.75, Math.min(room.width / width, room.height / height)));
  const seen = { width: room.width / scale, height: room.height / scale };
  view.seen = { x: (width - seen.width) / 2, y: height < seen.height ? (height - seen.height) / 2 : 0, ...seen };
  view.isWhole = true;
  show();
}

function point(event) {
  const at = new DOMPoint(event.clientX, event.clientY);
  return at.matrixTransform(view.svg.getScreenCTM().inverse());
}

function zoom(factor, at) {
  const { seen } = view;
  view.isWhole = false;
  const middle = at ?? { x: seen.x + seen.width / 2, y: seen.y + seen.height / 2 };
  seen.x = middle.x - (middle.x - seen.x) * factor;
  seen.y = middle.y - (middle.y - seen.y) * factor;
  seen.width *= factor;
  seen.height *= factor;
  show();
}

function drag(svg) {
  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    from = point(event);
    view.moved = false;
  });
  svg.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) { return; }
    const now = point(event);
    if (Math.hypot(now.x - from.x, now.y - from.y) > 4) { view.moved = true; }
    svg.classList.add("moving");
    view.isWhole = false;
    view.seen.x += from.x - now.x;
    view.seen.y += from.y - now.y;
    show();
  });
  for (const end of ["pointerup", "pointerleave"]) {
    svg.addEventListener(end, () => {
      from = null;
      svg.classList.remove("moving");
    });
  }
}

function roving(chosen) {
  view.nodes.forEach((node) => node.setAttribute("tabindex", node === chosen ? "0" : "-1"));
}

/** Moves the focus to a box, and what is seen so that the box is. */
function go(node) {
  if (!node) { return; }
  roving(node);
  node.focus({ preventScroll: true });
  const { seen } = view;
  const { x, y, width, height } = node.querySelector("rect").getBBox();
  const shifted = (from, room, at, size) => at < from || size > room ? at - room / 8 : Math.max(from, at + size - room + (at + size > from + room ? room / 8 : 0));
  seen.x = shifted(seen.x, seen.width, x, width);
  seen.y = shifted(seen.y, seen.height, y, height);
  view.isWhole = false;
  show();
}

/** The box on a side whose middle is nearest, of those at about the same height. */
function beside(node, side) {
  const middle = (of) => {
    const { x, y, width, height } = of.querySelector("rect").getBBox();
    return { x: x + width / 2, y: y + height / 2, height };
  };
  const from = middle(node);
  let nearest = null;
  let least = Infinity;
  view.nodes.forEach((other) => {
    const at = middle(other);
    const away = (at.x - from.x) * side;
    if (away > 0 && away < least && Math.abs(at.y - from.y) < (at.height + from.height) / 2) { [nearest, least] = [other, away]; }
  });
  return nearest;
}

/** Keys of a box with the focus; true when the key was taken. */
function boxKey(node, key) {
  const own = Number(node.dataset.key);
  const other = (from, to) => view.nodes.get(view.calls.find((call) => call[from] === own && call[to] !== own)?.[to]);
  const ways = {
    ArrowUp: () => go(other(1, 0)),
    ArrowDown: () => go(other(0, 1)),
    ArrowLeft: () => go(beside(node, -1)),
    ArrowRight: () => go(beside(node, 1)),
    Enter: () => set({ fn: nameOf(node) }),
    " ": () => set({ fn: nameOf(node) }),
  };
  ways[key]?.();
  return key in ways;
}

/** Keys of the graph; true when the key was taken. */
export function graphKey(key) {
  if (!view?.box.isConnected) { return false; }
  const node = focused();
  if (node && boxKey(node, key)) { return true; }
  const step = view.seen.width / 10;
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  if (moves[key]) {
    view.isWhole = false;
    view.seen.x += moves[key][0];
    view.seen.y += moves[key][1];
    show();
  } else if (key === "+" || key === "=") {
    zoom(0.8);
  } else if (key === "-") {
    zoom(1.25);
  } else if (key === "0") {
    whole();
  } else {
    return false;
  }
  return true;
}
