// Profiles: asked from the server, and sums that all views share.
//
// A profile is a call tree as arrays side by side; a parent stands before its children. With a base, numbers are
// differences and `before` has those of the base. Sums are made per value when first asked for.

/** Asks the server; an answer that is no success becomes an error with its text. */
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null));
  const answer = await fetch(`${path}?${query}`);
  if (!answer.ok) {
    const error = new Error((await answer.text()).trim());
    error.status = answer.status;
    throw error;
  }
  return answer;
}

export class Profile {
  constructor(json) {
    Object.assign(this, json);
    this.isDifference = this.before.length > 0;
    this.children = this.parents.map(() => []);
    for (let at = 1; at < this.parents.length; at += 1) { this.children[this.parents[at]].push(at); }
    this.sums = [];
  }

  /** What a number of a value counts: bytes, objects, nanoseconds and so on. */
  unit(value) {
    return this.about.values[value].unit;
  }

  /** Name of a node. */
  label(node) {
    return node === 0 ? "all" : this.functions[this.calls[node]];
  }

  /** Per node: all below it after and before; per function: own and whole. */
  of(value) {
    if (this.sums[value]) { return this.sums[value]; }
    const count = this.parents.length;
    const after = Float64Array.from(this.own[value]);
    const before = this.isDifference ? Float64Array.from(this.before[value]) : new Float64Array(count);
    const own = after.map((number, at) => number - before[at]);
    for (let at = count - 1; at > 0; at -= 1) {
      after[this.parents[at]] += after[at];
      before[this.parents[at]] += before[at];
    }
    const functions = this.functions.map((name, index) => ({ index, name, own: 0, whole: 0, before: 0, after: 0 }));
    for (let at = 1; at < count; at += 1) {
      const entry = functions[this.calls[at]];
      entry.own += own[at];
      if (!this.isInside(at)) {
        entry.whole += after[at] - before[at];
        entry.after += after[at];
        entry.before += before[at];
      }
    }
    this.sums[value] = { after, before, own, functions, total: after[0] - before[0] };
    return this.sums[value];
  }

  /** The function of a node is among its callers: counted there already. */
  isInside(node) {
    for (let at = this.parents[node]; at > 0; at = this.parents[at]) {
      if (this.calls[at] === this.calls[node]) { return true; }
    }
    return false;
  }

  /** Who calls a function, and whom it calls, with what is held under these calls; largest first. */
  neighbours(index, value) {
    const { after, before } = this.of(value);
    const [callers, callees] = [new Map(), new Map()];
    const add = (map, key, number) => map.set(key, (map.get(key) ?? 0) + number);
    for (let at = 1; at < this.parents.length; at += 1) {
      const held = after[at] - before[at];
      const parent = this.parents[at];
      if (this.calls[at] === index && !this.isInside(at)) { add(callers, parent > 0 ? this.calls[parent] : -1, held); }
      if (parent > 0 && this.calls[parent] === index && !this.isInside(parent)) { add(callees, this.calls[at], held); }
    }
    const rows = (map) => [...map].map(([key, number]) => ({ index: key, name: key < 0 ? "(thread start)" : this.functions[key], number }))
      .filter((row) => row.number !== 0).sort((a, b) => Math.abs(b.number) - Math.abs(a.number));
    return { callers: rows(callers), callees: rows(callees) };
  }

  /** Names from the root to a node, as one text; and back. */
  path(node) {
    const names = [];
    for (let at = node; at > 0; at = this.parents[at]) { names.push(this.label(at).replaceAll(";", ":")); }
    return names.reverse().join(";");
  }

  find(path) {
    let at = 0;
    for (const name of path ? path.split(";") : []) {
      const next = this.children[at].find((child) => this.label(child).replaceAll(";", ":") === name);
      if (next === undefined) { break; }
      at = next;
    }
    return at;
  }
}

/** A pattern of the search; null when there is none or it is not one. */
export function pattern(text) {
  try {
    return text ? new RegExp(text, "i") : null;
  } catch {
    return null;
  }
}
