// The table of all ops, a page at a time: what the canvas shows, for those who cannot see it, and to sort by.

const ROWS = 50;

class Ops {
  constructor(graph, step, view, choose) {
    Object.assign(this, {graph, step, view, choose});
    this.page = 0;
    this.by = 1;
    this.falling = true;
    this.columns = [
      ["Op", "text wide", null, (op) => this.name(op)],
      ["Duration", "", (op) => step.finish[op] - step.start[op], (op) => step.seconds(step.finish[op] - step.start[op])],
      ["Start", "", (op) => step.start[op], (op) => step.seconds(step.start[op])],
      ["Slack", "", (op) => step.slack[op], (op) => step.seconds(step.slack[op])],
      ["On", "text", (op) => step.lane[op], (op) => visible(step.said.lanes[step.lane[op]].name)],
      ["Type", "text", (op) => graph.typeName(op), (op) => brief(graph.typeName(op), 40)],
      ["Waited for", "text", (op) => step.cause[op], (op) => CAUSES[step.cause[op]][0]],
    ];
    at("before").onclick = () => this.turn(-1);
    at("after").onclick = () => this.turn(1);
    at("which").onchange = () => this.refill();
  }

  name(op) {
    const name = visible(this.graph.names.of(op));
    return made("button", {type: "button", className: "name", onclick: () => this.choose(op, true)}, brief(name, 160));
  }

  // The ops that are to be listed, sorted.
  refill() {
    const which = at("which").value, {step, view, graph} = this, ops = [];
    for (let op = 0; op < graph.ops; op++) {
      if (which === "path" ? step.onPath[op] : which !== "found" || !view.found || view.found[op]) ops.push(op);
    }
    this.ops = Int32Array.from(ops);
    this.sort();
  }

  sort() {
    const key = this.columns[this.by][2], sign = this.falling ? -1 : 1;
    if (key) {
      const keys = Array.from(this.ops, key), text = typeof keys[0] === "string", by = Int32Array.from(keys.keys());
      by.sort(text ? (a, b) => sign * (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0) || a - b : (a, b) => sign * (keys[a] - keys[b]) || a - b);
      this.ops = by.map((k) => this.ops[k]);
    } else {
      this.ops.sort((a, b) => sign * (a - b)); // names stand in the order of the graph
    }
    this.page = 0;
    this.draw();
  }

  sortBy(column) {
    this.falling = column === this.by ? !this.falling : column === 1 || column === 3;
    this.by = column;
    this.sort();
    at("ops").tHead.rows[0].cells[column].firstChild.focus();
  }

  turn(by) {
    this.page += by;
    this.draw();
  }

  head(k) {
    const [title, kind] = this.columns[k], order = this.falling ? "descending" : "ascending";
    const cell = made("th", {scope: "col", className: kind}, made("button", {type: "button", onclick: () => this.sortBy(k)}, title));
    if (k === this.by) cell.setAttribute("aria-sort", order);
    return cell;
  }

  draw() {
    const first = this.page * ROWS, last = Math.min(this.ops.length, first + ROWS);
    const body = Array.from(this.ops.subarray(first, last), (op) => made("tr", {className: op === this.view.chosen ? "chosen" : ""},
      ...this.columns.map(([, kind, , cell]) => made("td", {className: kind}, cell(op)))));
    at("ops").replaceChildren(made("thead", null, made("tr", null, ...this.columns.map((_, k) => this.head(k)))), made("tbody", null, ...body));
    at("ops").setAttribute("aria-rowcount", this.ops.length + 1);
    at("page").textContent = this.ops.length ? `${count(first + 1)} to ${count(last)} of ${counted(this.ops.length, "op")}` : "no ops";
    at("before").disabled = this.page === 0;
    at("after").disabled = last >= this.ops.length;
  }
}
