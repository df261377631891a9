// One plan: when each op and transfer runs, and what each op waited for.

const BEGIN = 0, DATA = 1, SENT = 2, DEVICE = 3; // what an op waited for, as `pesto.reporting.explaining.waits` counts

class Step {
  constructor(said, columns, graph) {
    this.said = said;
    this.graph = graph;
    this.tick = said.tick_s;
    const n = graph.ops;
    this.order = Int32Array.from(summed(columns.order));
    this.firstOn = offsets(columns.on);
    this.lane = new Int16Array(n);
    this.place = new Int32Array(n);
    this.start = new Float64Array(n);
    this.finish = new Float64Array(n);
    this.slack = new Float64Array(n);
    this.times(columns.gap, sinceAlike(columns.took, graph.alike, graph.said.patterns.length), summed(columns.slack));
    this.cause = columns.cause;
    this.transfers(columns);
    this.waits(columns.reason);
    this.levels(columns);
    this.path();
  }

  times(gap, took, slack) {
    for (let lane = 0; lane + 1 < this.firstOn.length; lane++) {
      let now = 0;
      for (let k = this.firstOn[lane]; k < this.firstOn[lane + 1]; k++) {
        const op = this.order[k];
        this.lane[op] = lane;
        this.place[op] = k;
        this.slack[op] = slack[k];
        this.start[op] = now + gap[k];
        this.finish[op] = now = this.start[op] + took[op];
      }
    }
  }

  transfers(columns) {
    this.sentOp = summed(columns.sent_op);
    this.sentTo = columns.sent_to;
    this.sentStart = summed(columns.sent_start);
    this.sentFinish = this.sentStart.map((start, k) => start + columns.sent_took[k]);
    this.sentBytes = columns.sent_bytes;
    this.onLink = this.links();
    this.bytesSent = this.sentBytes.reduce((sum, bytes) => sum + bytes, 0);
  }

  // The op that each one waited for (-1 for none), the transfer that brought it, and the lists of who waited for each.
  waits(reason) {
    const n = this.graph.ops;
    this.after = new Int32Array(n).fill(-1);
    this.transfer = new Int32Array(n).fill(-1);
    const waiting = new Int32Array(n);
    for (let op = 0; op < n; op++) {
      if (this.cause[op] === DATA) this.after[op] = op - reason[op];
      else if (this.cause[op] === DEVICE) this.after[op] = this.order[this.place[op] - 1 - reason[op]];
      else if (this.cause[op] === SENT) this.after[op] = this.sentOp[this.transfer[op] = reason[op]];
      if (this.after[op] >= 0) waiting[this.after[op]]++;
    }
    this.firstWaiting = offsets(waiting);
    this.waiting = new Int32Array(this.firstWaiting[n]);
    const next = this.firstWaiting.slice();
    for (let op = 0; op < n; op++) if (this.after[op] >= 0) this.waiting[next[this.after[op]]++] = op;
  }

  levels(columns) {
    const first = offsets(columns.levels);
    this.memory = this.said.devices.map((_, d) => ({
      at: summed(columns.level_at.subarray(first[d], first[d + 1])),
      level: summed(columns.level.subarray(first[d], first[d + 1])),
    }));
  }

  path() {
    this.onPath = new Uint8Array(this.graph.ops);
    this.pathOps = [];
    for (let op = this.said.path_ends; op >= 0; op = this.after[op]) {
      this.onPath[op] = 1;
      this.pathOps.push(op);
    }
    this.pathOps.reverse();
    this.sentOnPath = new Uint8Array(this.sentOp.length);
    for (const op of this.pathOps) if (this.transfer[op] >= 0) this.sentOnPath[this.transfer[op]] = 1;
  }

  device(op) { return this.said.lanes[this.lane[op]].device; }

  deviceName(op) { return this.said.devices[this.device(op)].name; }

  isFast(lane) { return this.said.devices[this.said.lanes[lane].device].kind !== "cpu"; }

  // Ticks that the other accelerators, all together, do nothing while an op runs.
  idleUnder(op) {
    const begin = this.start[op], end = this.finish[op];
    let idle = 0;
    for (let lane = 0; lane < this.said.lanes.length; lane++) {
      if (lane === this.lane[op] || !this.isFast(lane)) continue;
      const row = {items: this.order.subarray(this.firstOn[lane], this.firstOn[lane + 1]), finish: this.finish};
      idle += end - begin;
      for (let k = firstAfter(row, begin); k < row.items.length && this.start[row.items[k]] < end; k++) {
        idle -= Math.min(end, this.finish[row.items[k]]) - Math.max(begin, this.start[row.items[k]]);
      }
    }
    return idle;
  }

  seconds(ticks) { return duration(ticks * this.tick); }

  // The transfers that hold each link, by the path from their sender's device, in the order in which they start.
  links() {
    const found = this.said.links.map(() => []);
    for (let k = 0; k < this.sentOp.length; k++) {
      for (const link of this.said.routes[this.device(this.sentOp[k])][this.sentTo[k]]) found[link].push(k);
    }
    return found.map((sent) => Int32Array.from(sent.sort((a, b) => this.sentStart[a] - this.sentStart[b])));
  }
}
