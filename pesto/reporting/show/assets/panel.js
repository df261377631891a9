// What the page says of one op: times, what it waited for, who waits for it, its slack, and why it is not elsewhere.

const MOST_NAMED = 12; // ops of a list that are named
const MOST_LONGEST = 6;
const WORTH = 0.002; // share of the step

class Panel {
  constructor(graph, steps, choose) {
    Object.assign(this, {graph, steps, choose});
    this.groups = null;
  }

  // A button with an op's name that chooses the op.
  link(op) {
    const name = visible(this.graph.names.of(op));
    return made("button", {type: "button", className: "name", title: name, onclick: () => this.choose(op)}, brief(name, 160));
  }

  show(op) {
    if (op < 0) return this.longest();
    const step = this.steps[0], name = visible(this.graph.names.of(op));
    const edge = step.onPath[op] ? "; on the critical path" : "";
    return filled("panel",
      made("h3", null, made("span", {className: "name"}, brief(name, 400))),
      made("p", null, `${this.graph.typeName(op)} on ${visible(step.said.lanes[step.lane[op]].name)}`),
      made("p", null, step.finish[op] > step.start[op]
        ? `${step.seconds(step.start[op])} to ${step.seconds(step.finish[op])}, takes ${step.seconds(step.finish[op] - step.start[op])}${this.idle(step, op)}`
        : `at ${step.seconds(step.start[op])}, takes no time`),
      made("h4", null, "Slack"),
      made("p", null, step.slack[op] > 0 ? `It may end ${step.seconds(step.slack[op])} later without a longer step${edge}.` : `None: were it later, so would be the step${edge}.`),
      made("h4", null, "It waited for"), this.cause(step, op),
      ...this.waiting(step, op), ...this.inputs(op),
      made("h4", null, "Why not elsewhere"), ...this.elsewhere(step, op), ...this.others(op));
  }

  // Where nothing is chosen: the ops of the critical path that take longest.
  longest() {
    const step = this.steps[0], took = (op) => step.finish[op] - step.start[op];
    const ops = step.pathOps.slice().sort((a, b) => took(b) - took(a)).slice(0, MOST_LONGEST).filter((op) => took(op) > 0);
    const rows = ops.map((op) => made("li", null, this.link(op), ` ${step.seconds(took(op))}, ${percent(share(took(op), step.said.step))} of the step${this.idle(step, op)}`));
    filled("panel", made("p", {className: "note"}, "Choose an op, by a click or with Enter, to see what it waited for, who waits for it, its slack, and why it is not elsewhere."),
      made("h4", null, "Longest on the critical path"), made("ul", null, ...rows));
  }

  // What the other accelerators miss meanwhile, where that is worth a word.
  idle(step, op) {
    const idle = step.idleUnder(op);
    return idle > WORTH * step.said.step ? `; others idle ${step.seconds(idle)} meanwhile` : "";
  }

  cause(step, op) {
    const why = step.cause[op], before = step.after[op];
    if (why === BEGIN || before < 0) return made("p", null, "Nothing: it begins with the step.");
    if (why === DATA) return made("p", null, "an op that it follows: ", this.link(before));
    if (why === DEVICE) return made("p", null, "its processor, busy with ", this.link(before));
    const k = step.transfer[op], late = step.sentStart[k] - step.finish[before];
    const link = late > 0 ? `, after ${step.seconds(late)} for a free link` : "";
    return made("p", null, `a tensor of ${size(step.sentBytes[k])} from ${visible(step.deviceName(before))}, ${step.seconds(step.sentFinish[k] - step.sentStart[k])} on its way${link}, made by `, this.link(before));
  }

  list(ops) {
    const rest = ops.length - MOST_NAMED, rows = Array.from(ops.slice(0, MOST_NAMED), (op) => made("li", null, this.link(op)));
    if (rest > 0) rows.push(made("li", null, `and ${count(rest)} more`));
    return made("ul", null, ...rows);
  }

  waiting(step, op) {
    const ops = step.waiting.subarray(step.firstWaiting[op], step.firstWaiting[op + 1]);
    if (!ops.length) return [made("h4", null, "Who waited for it"), made("p", null, "Nobody.")];
    return [made("h4", null, `${counted(ops.length, "op")} waited for it`), this.list(ops)];
  }

  inputs(op) {
    const ops = this.graph.input.subarray(this.graph.firstInput[op], this.graph.firstInput[op + 1]);
    return ops.length ? [made("h4", null, "It follows"), this.list([...new Set(ops)])] : [];
  }

  elsewhere(step, op) {
    const group = this.group(op), others = step.said.devices.filter((_, d) => d !== step.device(op));
    if (!others.length) return [made("p", null, "The cluster has no other device.")];
    const free = others.filter((device) => [op, ...group].every((member) => this.hasKernel(member, device.kind)));
    const kinds = [...new Set(others.filter((device) => !free.includes(device)).map((device) => device.kind))];
    const said = kinds.map((kind) => made("p", null, this.hasKernel(op, kind)
      ? `${visible(kind)}: an op of its group has no kernel for such a device.`
      : `${visible(kind)}: it has no kernel for such a device.`));
    const here = step.said.devices[step.device(op)].kind;
    const slow = free.filter((device) => device.kind === "cpu" && here !== "cpu");
    if (slow.length) said.push(made("p", null, "cpu: what can run on an accelerator, with its whole group, does."));
    const open = free.filter((device) => !slow.includes(device)).map((device) => visible(device.name));
    if (open.length) {
      const what = group.length > 1 ? "with its group it may be" : "it may be";
      said.push(made("p", null, `${brief(open.join(", "), 120)}: ${what}; the search found nothing shorter there.`));
    }
    if (group.length > 1) {
      said.push(made("p", null, `It shares a device with ${counted(group.length - 1, "op")} of its group:`), this.list(group.filter((other) => other !== op)));
    }
    return said;
  }

  hasKernel(op, kind) {
    const k = this.graph.said.kinds.indexOf(kind);
    return k >= 0 && Math.floor(this.graph.kinds[op] / 2 ** k) % 2 === 1;
  }

  // The ops that must be where an op is, itself among them.
  group(op) {
    if (!this.groups) {
      this.groups = new Map();
      this.graph.group.forEach((group, k) => {
        if (group < 0) return;
        if (!this.groups.has(group)) this.groups.set(group, []);
        this.groups.get(group).push(k);
      });
    }
    return this.groups.get(this.graph.group[op]) || [];
  }

  // Where the other plans of the page have it.
  others(op) {
    if (this.steps.length < 2) return [];
    return [made("h4", null, "In the other plans"), made("ul", null, ...this.steps.slice(1).map((step) =>
      made("li", null, `${visible(step.said.label)}: on ${visible(step.deviceName(op))}, ${step.seconds(step.start[op])} to ${step.seconds(step.finish[op])}`)))];
  }
}
