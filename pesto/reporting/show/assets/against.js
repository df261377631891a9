// The first plan against others of the same graph: makespans, bytes cut, and which ops are elsewhere.

const MOST_SCOPES = 12;

function movedOps(step, other) {
  let moved = 0;
  const by = new Map(), {graph} = step;
  for (let op = 0; op < graph.ops; op++) {
    if (step.deviceName(op) === other.deviceName(op)) continue;
    moved++;
    const key = `${graph.gathered[op]}|${other.device(op)}|${step.device(op)}`, found = by.get(key) || {op, ops: 0, ticks: 0};
    found.ops++;
    found.ticks += step.finish[op] - step.start[op];
    by.set(key, found);
  }
  return {moved, by: [...by.values()].sort((a, b) => b.ticks - a.ticks || b.ops - a.ops)};
}

function peaks(step) {
  return step.said.devices.filter((device) => device.kind !== "cpu").map((device) => `${visible(device.name)} ${size(device.peak)}`).join(", ");
}

function against(graph, steps) {
  const [step, ...others] = steps;
  if (!others.length) return;
  at("against").hidden = false;
  const moved = others.map((other) => movedOps(step, other));
  const rows = steps.map((each, k) => [visible(each.said.label), each.seconds(each.said.step),
    k ? difference(each.said.step * each.tick, step.said.step * step.tick) : "", each.seconds(each.said.bound), size(each.bytesSent), count(each.sentOp.length),
    k ? `${count(moved[k - 1].moved)} of ${count(graph.ops)}` : "", brief(peaks(each), 80)]);
  filled("against-body", table([["Plan", "text"], ["Step"], ["Against the first"], ["Bound"], ["Bytes sent"], ["Transfers"], ["Ops elsewhere"], ["Peaks", "text"]], rows, (k) => k === 0),
    ...others.flatMap((other, k) => movedTable(step, other, moved[k])));
}

function difference(other, own) {
  if (other === own) return "as long";
  return other > own ? `${percent(other / own - 1)} longer` : `${percent(1 - other / own)} shorter`;
}

function movedTable(step, other, {moved, by}) {
  const label = visible(other.said.label);
  if (!moved) return [made("p", null, `${label}: every op is on the same device.`)];
  const {graph} = step, rest = by.length - MOST_SCOPES;
  const rows = by.slice(0, MOST_SCOPES).map(({op, ops, ticks}) => [brief(graph.labels[graph.gathered[op]], 120),
    visible(other.deviceName(op)), visible(step.deviceName(op)), count(ops), step.seconds(ticks)]);
  const more = rest > 0 ? [made("p", {className: "note"}, `${counted(rest, "more row")} with less time.`)] : [];
  return [made("p", {className: "note"}, `Ops that ${label} has elsewhere, by scope:`),
    table([["Scope", "text wide"], [`In ${brief(label, 30)}`, "text"], ["Here", "text"], ["Ops"], ["Time here"]], rows), ...more];
}
