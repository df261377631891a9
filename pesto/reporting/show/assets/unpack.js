// Columns out of the page: base64, deflate, bytes, differences. `column_encoding.py` and `columns.py` have the other direction.

async function inflated(text) {
  const raw = atob(text.trim()), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  const stream = new DecompressionStream("deflate-raw"), writer = stream.writable.getWriter();
  writer.write(bytes).catch(() => {}); // what is damaged is said by the reader
  writer.close().catch(() => {});
  return new Uint8Array(await new Response(stream.readable).arrayBuffer());
}

// The columns by name; the first byte of a number has its sign in bit 0 and 6 bits of its size, each other 7 bits more.
function columnsOf(lengths, bytes) {
  const found = {};
  let k = 0;
  for (const [name, length] of Object.entries(lengths)) {
    const column = new Float64Array(length);
    for (let i = 0; i < length; i++) {
      let byte = bytes[k++], value = (byte & 127) >> 1;
      const below = byte & 1; // most numbers have one byte
      for (let unit = 64; byte > 127; unit *= 128) {
        byte = bytes[k++];
        value += (byte & 127) * unit;
      }
      column[i] = below ? -value : value;
    }
    found[name] = column;
  }
  if (k !== bytes.length) throw new Error("the page's columns are damaged");
  return found;
}

function summed(column) {
  for (let k = 1; k < column.length; k++) column[k] += column[k - 1];
  return column;
}

// Adds to each entry the last one of its class, as `since_alike` took it away.
function sinceAlike(column, alike, classes) {
  const last = new Float64Array(classes);
  for (let k = 0; k < column.length; k++) last[alike[k]] = column[k] += last[alike[k]];
  return column;
}

// Offsets of lists that stand behind each other: list i is first[i] to first[i + 1].
function offsets(lengths) {
  const first = new Int32Array(lengths.length + 1);
  for (let k = 0; k < lengths.length; k++) first[k + 1] = first[k] + lengths[k];
  return first;
}

// The names as a tree of scopes: a name is put together when it is asked for.
class Names {
  constructor(said, columns) {
    this.patterns = said.patterns;
    this.scopes = said.scopes;
    this.parent = summed(columns.parent);
    this.pattern = columns.pattern;
    this.number = columns.steps;
    this.first = new Int32Array(this.parent.length);
    this.whole = new Map();
    const last = this.patterns.map((pieces) => new Float64Array(pieces.length - 1));
    let k = 0;
    for (let node = 0; node < this.parent.length; node++) {
      const before = last[this.pattern[node]];
      this.first[node] = k;
      for (let slot = 0; slot < before.length; slot++, k++) before[slot] = this.number[k] += before[slot];
    }
  }

  part(node) {
    const pieces = this.patterns[this.pattern[node]];
    let text = pieces[0];
    for (let slot = 1; slot < pieces.length; slot++) text += this.number[this.first[node] + slot - 1] + pieces[slot];
    return text;
  }

  node(node) {
    const above = this.parent[node];
    return above < 0 ? this.part(node) : `${this.scope(above)}/${this.part(node)}`;
  }

  scope(node) {
    if (!this.whole.has(node)) this.whole.set(node, this.node(node));
    return this.whole.get(node);
  }

  of(op) { return this.node(this.scopes + op); }

  leaf(op) { return this.part(this.scopes + op); }
}

// The graph that all plans of the page are of.
class Graph {
  constructor(said, columns) {
    const n = this.ops = said.ops;
    this.said = said;
    this.names = new Names(said, columns);
    const alike = this.alike = columns.pattern.subarray(said.scopes), classes = said.patterns.length;
    this.type = sinceAlike(columns.type, alike, classes);
    this.kinds = sinceAlike(columns.kinds, alike, classes);
    this.group = summed(columns.group);
    const inputs = sinceAlike(columns.inputs, alike, classes);
    this.firstInput = offsets(inputs);
    this.input = this.inputs(columns.from, classes);
    this.gathered = new Int32Array(n);
    this.labels = ["(no scope)", ...said.gathered.map((node) => visible(this.names.scope(node)))];
    this.gather();
  }

  inputs(from, classes) {
    const heads = new Float64Array(from.length), edges = new Int32Array(from.length), slots = 64;
    for (let op = 0; op < this.ops; op++) {
      for (let k = this.firstInput[op], slot = 0; k < this.firstInput[op + 1]; k++, slot++) {
        heads[k] = this.alike[op] * slots + Math.min(slot, slots - 1);
        edges[k] = op;
      }
    }
    const offset = sinceAlike(from, heads, classes * slots);
    for (let k = 0; k < edges.length; k++) edges[k] -= offset[k];
    return edges;
  }

  // The scope that each op is gathered by: the innermost above it that is one of those; 0 for none.
  gather() {
    const names = this.names, of = new Int32Array(names.scopes);
    this.said.gathered.forEach((node, k) => { of[node] = k + 1; });
    for (let node = 0; node < names.scopes; node++) {
      if (!of[node] && names.parent[node] >= 0) of[node] = of[names.parent[node]];
    }
    for (let op = 0; op < this.ops; op++) {
      const above = names.parent[names.scopes + op];
      this.gathered[op] = above < 0 ? 0 : of[above];
    }
  }

  typeName(op) { return visible(this.said.types[this.type[op]]); }

  // Ops whose names have every word of the text, whatever the case; all names are put together once.
  found(text) {
    if (!this.lower) this.lower = Array.from({length: this.ops}, (_, op) => this.names.of(op).toLowerCase());
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), ops = [];
    for (let op = 0; op < this.ops; op++) if (words.every((word) => this.lower[op].includes(word))) ops.push(op);
    return ops;
  }
}
