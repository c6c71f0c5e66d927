// The flame graph: one button per frame that is wide enough to be seen; zoom, search, neighbours by arrows.
//
// Frames below a pixel and a half are not made, so a graph of any size has no more elements than the window has room
// for. In a difference the width is the larger of before and after, and the colour says what changed.

import { amount, change, element, percent } from "./format.js";
import { pattern } from "./data.js";
import { get, set } from "./state.js";

const ROW = 20;
const NARROWEST = 1.5;
// Below it, a frame has no name.
const NAMED = 24;

let drawn = null;

/** Draws into a place. */
export function showFlame(place, profile, value) {
  const isDown = get("down") === "1";
  const hint = element("div", { class: "hint", role: "status", id: "hint" });
  const box = element("div", { class: "flame", role: "tree", "aria-label": "Flame graph" });
  const tools = element("div", { class: "tools" },
    element("button", { type: "button", id: "whole", click: () => set({ zoom: "" }) }, "Whole"),
    element("button", { type: "button", id: "turn", click: () => set({ down: isDown ? "" : "1" }) }, isDown ? "Root at the bottom" : "Root at the top"),
    element("span", {}, profile.isDifference ? "red grew, blue shrank; width: the larger of before and after" : "width: held by the function and what it calls"));
  place.replaceChildren(tools, box, hint);
  const width = Math.max(320, place.clientWidth - 28);
  drawn = { profile, value, box, hint, nodes: new Map(), weights: weights(profile, value) };
  const zoom = profile.find(get("zoom"));
  const chain = [];
  for (let at = zoom; at > 0; at = profile.parents[at]) { chain.push(profile.parents[at]); }
  chain.reverse();
  if (drawn.weights[0] <= 0) {
    box.replaceWith(element("p", { class: "empty" }, "Nothing is held: there is nothing to draw."));
    return;
  }
  const frames = [];
  chain.forEach((node, depth) => frames.push({ node, depth, x: 0, width, above: true }));
  lay(zoom, chain.length, 0, width, frames);
  const deepest = frames.reduce((most, frame) => Math.max(most, frame.depth), 0);
  const regex = pattern(get("search"));
  const fragment = document.createDocumentFragment();
  for (const frame of frames) { fragment.append(make(frame, deepest, isDown, regex, zoom)); }
  box.style.height = `${(deepest + 1) * ROW}px`;
  box.append(fragment);
  const start = drawn.nodes.get(zoom);
  start.tabIndex = 0;
  describe(zoom);
  if (!isDown) { place.scrollTop = place.scrollHeight; }
}

/** Width of nodes: what is held, or the larger of before and after, made to fit into the caller's. */
function weights(profile, value) {
  const { after, before } = profile.of(value);
  if (!profile.isDifference) { return after.map((number) => Math.max(number, 0)); }
  const widths = new Float64Array(after.length);
  for (let at = after.length - 1; at >= 0; at -= 1) {
    const below = profile.children[at].reduce((sum, child) => sum + widths[child], 0);
    widths[at] = Math.max(after[at], before[at], below, 0);
  }
  return widths;
}

function lay(root, depth, x, width, frames) {
  const { profile, weights: widths } = drawn;
  const open = [{ node: root, depth, x, width }];
  while (open.length > 0) {
    const frame = open.pop();
    frames.push(frame);
    const scale = frame.width / widths[frame.node];
    let at = frame.x;
    const children = profile.children[frame.node].filter((child) => widths[child] * scale >= NARROWEST);
    children.sort((a, b) => (profile.label(a) < profile.label(b) ? -1 : 1));
    for (const child of children) {
      open.push({ node: child, depth: frame.depth + 1, x: at, width: widths[child] * scale });
      at += widths[child] * scale;
    }
  }
}

function make({ node, depth, x, width, above }, deepest, isDown, regex, zoom) {
  const { profile } = drawn;
  const name = profile.label(node);
  const frame = element("button", {
    type: "button", class: "frame", role: "treeitem", tabindex: "-1", "data-node": node,
    "aria-level": depth + 1, "aria-label": text(node),
    click: () => choose(node), mouseenter: () => describe(node), focus: () => describe(node),
  }, width > NAMED ? name : "");
  // What surrounds a name would make it wider than it is, and reach over its neighbour.
  frame.classList.toggle("thin", width <= NAMED);
  frame.classList.toggle("above", Boolean(above));
  frame.classList.toggle("chosen", node > 0 && name === get("fn"));
  if (regex && node > 0) { frame.classList.add(regex.test(name) ? "hit" : "miss"); }
  frame.setAttribute("aria-selected", String(node === zoom));
  frame.style.left = `${x}px`;
  frame.style.width = `${Math.max(1, width - 1)}px`;
  frame.style.top = `${(isDown ? depth : deepest - depth) * ROW}px`;
  frame.style.background = colour(node, name);
  drawn.nodes.set(node, frame);
  return frame;
}

/** From the name, so that a function has one colour everywhere; in a difference from what changed. */
function colour(node, name) {
  const { profile, value } = drawn;
  if (profile.isDifference) {
    const { after, before } = profile.of(value);
    const whole = Math.max(after[0], before[0]) || 1;
    const share = Math.sqrt(Math.min(1, Math.abs(after[node] - before[node]) / whole));
    const hue = after[node] > before[node] ? 6 : 212;
    return share === 0 ? "#dcdfe3" : `hsl(${hue} ${Math.round(60 + 25 * share)}% ${Math.round(88 - 26 * share)}%)`;
  }
  if (node === 0) { return "#d3d9df"; }
  let hash = 7;
  for (const letter of name) { hash = (hash * 31 + letter.codePointAt(0)) % 100003; }
  return `hsl(${18 + hash % 38} ${72 + hash % 17}% ${64 + hash % 13}%)`;
}

function text(node) {
  const { profile, value } = drawn;
  const { after, before, own } = profile.of(value);
  const unit = profile.unit(value);
  if (profile.isDifference) {
    return `${profile.label(node)}: ${change(after[node] - before[node], unit)}, from ${amount(before[node], unit)} to ${amount(after[node], unit)}`;
  }
  return `${profile.label(node)}: ${amount(after[node], unit)}, ${percent(after[node], after[0])}; itself ${amount(own[node], unit)}`;
}

function describe(node) {
  drawn.hint.textContent = text(node);
}

/** Zooms to a node and chooses its function. */
function choose(node) {
  set({ zoom: drawn.profile.path(node), fn: node > 0 ? drawn.profile.label(node) : "" });
  drawn.nodes.get(node)?.focus({ preventScroll: true });
}

/** Arrow keys move between frames: up and down as drawn, left and right among neighbours. True when the key was taken. */
export function flameKey(key) {
  const at = document.activeElement?.dataset?.node;
  if (!drawn || !drawn.box.isConnected || !key.startsWith("Arrow")) { return false; }
  const node = at === undefined ? drawn.profile.find(get("zoom")) : Number(at);
  const { profile, nodes } = drawn;
  const isDown = get("down") === "1";
  const made = (list) => list.filter((other) => nodes.has(other));
  const byPlace = (list) => made(list).sort((a, b) => nodes.get(a).offsetLeft - nodes.get(b).offsetLeft);
  let next;
  if (key === (isDown ? "ArrowUp" : "ArrowDown")) {
    next = node > 0 ? profile.parents[node] : undefined;
  } else if (key === (isDown ? "ArrowDown" : "ArrowUp")) {
    next = made(profile.children[node]).sort((a, b) => drawn.weights[b] - drawn.weights[a])[0];
  } else if (node > 0) {
    const row = byPlace(profile.children[profile.parents[node]]);
    next = row[row.indexOf(node) + (key === "ArrowRight" ? 1 : -1)];
  }
  if (next !== undefined && nodes.has(next)) {
    for (const frame of nodes.values()) { frame.tabIndex = -1; }
    nodes.get(next).tabIndex = 0;
    nodes.get(next).focus();
  }
  return true;
}

/** How many functions match the search, and what they hold, each stack once. */
export function found(profile, value) {
  const regex = pattern(get("search"));
  if (!regex) { return get("search") ? "not a pattern" : ""; }
  const { after, before, total } = profile.of(value);
  const hits = profile.functions.map((name) => regex.test(name));
  let held = 0;
  const open = [0];
  while (open.length > 0) {
    const at = open.pop();
    if (at > 0 && hits[profile.calls[at]]) {
      held += after[at] - before[at];
    } else {
      open.push(...profile.children[at]);
    }
  }
  const count = hits.filter(Boolean).length;
  return `${count} ${count === 1 ? "function matches" : "functions match"}: ${amount(held, profile.unit(value))}, ${percent(held, total)}`;
}
