// What is shown, as the fragment of the address: a copied address shows the same, and Back goes back.
//
//   view    flame, graph, table, source, timeline     at, base   ids of profiles, or "latest"
//   value   0 bytes in use, 1 objects, 2 and 3 ever    search     regular expression
//   zoom    functions from the root, joined by ;       fn         the chosen function
//   sort    column of the table                        down       1: the flame graph hangs from its root
//   code    1: instructions instead of source          focus      only stacks with a match, in the call graph

const LISTENERS = [];
let state = read();

function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** The present state; a missing name is its default. */
export function get(name) {
  return state[name] ?? "";
}

/** Changes names; an empty value removes one. `quiet` replaces the present address: typing and readings make no history. */
export function set(changes, quiet = false) {
  const before = state;
  const next = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...state, ...changes })) {
    if (value !== "" && value !== null && value !== undefined) { next.set(name, value); }
  }
  const hash = `#${next}`;
  if (hash === (location.hash || "#")) { return; }
  history[quiet ? "replaceState" : "pushState"](null, "", hash);
  state = read();
  tell(before);
}

/** Calls with the names that changed. */
export function listen(listener) {
  LISTENERS.push(listener);
}

function tell(before) {
  const names = new Set([...Object.keys(before), ...Object.keys(state)].filter((name) => before[name] !== state[name]));
  for (const listener of LISTENERS) { listener(names); }
}

window.addEventListener("popstate", () => {
  const before = state;
  state = read();
  tell(before);
});
