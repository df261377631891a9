// What the page says of the whole step: cards, candidates, bound, waits, devices, scopes, where the plan comes from.

function card(title, value, small) {
  return made("div", null, made("dt", null, title), made("dd", null, value, made("small", null, small)));
}

function share(part, whole) { return whole > 0 ? part / whole : 0; }

function cards(step) {
  const said = step.said, fifo = said.orders.fifo, gap = share(said.step - said.bound, said.step);
  const single = said.candidates.find((each) => each.name === "single");
  const full = said.devices.map((each) => [each, share(each.peak, each.capacity)]).sort((a, b) => b[1] - a[1])[0];
  const found = [
    card("Step, predicted", step.seconds(said.step), `${said.status}, by ${visible(said.chosen)}`),
    card("Lower bound", step.seconds(said.bound), gap ? `gap ${percent(gap)}` : "no gap: optimal"),
    said.order_enforced
      ? card("Its order", percent(share(Math.abs(fifo - said.step), fifo)), `${fifo < said.step ? "lost" : "saved"} against first in, first out (${step.seconds(fifo)})`)
      : card("Its order", "open", "left to the framework: first in, first out is predicted"),
  ];
  if (single && single.fits && single.ticks > said.step) found.push(card("One device alone", step.seconds(single.ticks), `${percent(1 - said.step / single.ticks)} shorter on all`));
  found.push(card("Fullest memory", size(full[0].peak), `${percent(full[1])} of ${visible(full[0].name)}`));
  found.push(...gpuCards(step));
  found.push(card("Sent", size(step.bytesSent), counted(step.sentOp.length, "transfer")));
  if (said.cpu_s !== null) found.push(card("Solved in", `${said.cpu_s.toFixed(1)} s`, "CPU seconds, all processes"));
  filled("cards", ...found);
}

// How busy accelerators are, and what holds nothing; batches a second where the batch is known.
function gpuCards(step) {
  const said = step.said, found = [];
  const ours = said.devices.some((device) => device.kind !== "cpu") ? (device) => device.kind !== "cpu" : () => true;
  const busy = said.devices.map((device, d) => {
    const lanes = said.lanes.filter((lane) => lane.device === d);
    return [visible(device.name), share(lanes.reduce((sum, lane) => sum + lane.busy, 0), said.step * lanes.length), device];
  }).filter(([, part, device]) => ours(device) && (part > 0 || device.peak > 0));
  if (busy.length) {
    const parts = busy.map(([, part]) => part), least = Math.min(...parts), most = Math.max(...parts);
    const words = busy.map(([name, part]) => `${name} ${percent(part)}`.replaceAll(" ", "\u00a0")).join(", ");
    found.push(card("Busy", least === most ? percent(most) : `${percent(least)} to ${percent(most)}`, said.idle ? `${words}; ${said.idle}` : words));
  }
  if (said.batch && said.step) {
    const rate = said.batch / (said.step * said.tick_s);
    found.push(card("Samples a second", rate >= 100 ? count(Math.round(rate)) : rate.toPrecision(3), `batches of ${count(said.batch)}`));
  }
  return found;
}

function candidateTable(step) {
  const said = step.said, rows = said.candidates.slice().sort((a, b) => a.ticks - b.ticks);
  const beaten = (each) => {
    if (!each.fits) return "does not fit";
    if (each.name === said.chosen) return "the plan";
    const less = 1 - said.step / each.ticks;
    return less > 0 ? `beaten by ${percent(less)}` : less < 0 ? `${percent(-less)} shorter` : "as good";
  };
  filled("candidates", table([["Candidate", "text"], ["Step"], ["", "text"], ["What it is", "text short"]],
    rows.map((each) => [visible(each.name), step.seconds(each.ticks), beaten(each), visible(each.words)]), (k) => rows[k].name === said.chosen));
}

function boundText(step) {
  const said = step.said, gap = share(said.step - said.bound, said.step), rests = said.bound_rests_on;
  const lines = [
    `No plan of this graph on this cluster, at these op times, is shorter than ${step.seconds(said.bound)}: ${visible(said.bound_by)}${rests ? ` (${rests})` : ""}.`,
    gap ? `So at most ${percent(gap)} of the step, ${step.seconds(said.step - said.bound)}, can still be saved by placement and order.` : "The plan reaches it: no placement and no order is better.",
    said.order_enforced
      ? `The same placement takes ${step.seconds(said.orders.fifo)} first in, first out, and ${step.seconds(said.orders.listed)} by bottom level; with links that send first what is wanted first, ${step.seconds(said.orders.scheduled)}.`
      : `The order is left to the framework; by bottom level the same placement takes ${step.seconds(said.orders.listed)}.`,
  ];
  const bar = made("div", {className: "split", role: "img", "aria-label": `bound ${percent(1 - gap)} of the step`});
  bar.append(...strips([[1 - gap, "var(--memory)"], [gap, "var(--path)"]]));
  const words = made("p", {className: "note"}, made("span", {className: "dot"}, swatch("var(--memory)"), `bound, ${percent(1 - gap)} of the step`),
    "\u2003", made("span", {className: "dot"}, swatch("var(--path)"), `gap, ${percent(gap)}`));
  filled("bound", bar, words, ...lines.map((text) => made("p", null, text)));
}

function strips(parts) {
  return parts.map(([part, colour]) => {
    const strip = swatch(colour);
    strip.style.width = `${100 * part}%`;
    return strip;
  });
}

const PATH_WORDS = {compute: ["ops compute", "var(--memory)"], transfer: ["tensors on their way", "var(--link)"],
  "link wait": ["waiting for a link", "var(--path)"], begin: ["before anything begins", "var(--busy)"]};

function waitTable(step) {
  const path = Object.entries(step.said.path).filter(([, ticks]) => ticks > 0);
  const bar = made("div", {className: "split", role: "img", "aria-label": "The critical path by kind"});
  bar.append(...strips(path.map(([kind, ticks]) => [share(ticks, step.said.step), PATH_WORDS[kind][1]])));
  const kinds = CAUSES.map(([text, colour], why) => {
    let ops = 0, ticks = 0;
    for (const op of step.pathOps) if (step.cause[op] === why) { ops++; ticks += step.finish[op] - step.start[op]; }
    return [made("span", {className: "dot"}, swatch(colour), text), count(ops), step.seconds(ticks)];
  });
  filled("waits", bar,
    table([["The critical path", "text"], ["Time"], ["Of the step"]], path.map(([kind, ticks]) => [
      made("span", {className: "dot"}, swatch(PATH_WORDS[kind][1]), PATH_WORDS[kind][0]), step.seconds(ticks), percent(share(ticks, step.said.step))])),
    made("p", {className: "note before"}, "What its ops waited for, with the time that they take:"),
    table([["Cause", "text"], ["Ops"], ["Time"]], kinds));
}

function deviceTable(step) {
  const said = step.said, lanes = said.lanes.filter((lane, k) => step.firstOn[k + 1] > step.firstOn[k]);
  const rows = lanes.map((lane) => {
    const device = said.devices[lane.device], busy = share(lane.busy, said.step);
    return [`${visible(lane.name)} (${visible(device.preset)})`, made("span", null, `${step.seconds(lane.busy)} (${percent(busy)})`, meter(busy)),
      made("span", null, `${size(device.peak)} of ${size(device.capacity)}`, meter(share(device.peak, device.capacity)))];
  });
  const idle = said.lanes.length - lanes.length;
  filled("devices", table([["Processor", "text"], ["Busy"], ["Peak memory"]], rows),
    ...(idle ? [made("p", {className: "note"}, `${counted(idle, "processor")} without any op ${idle === 1 ? "is" : "are"} not shown.`)] : []),
    ...linkTable(step));
}

// The links that carry something, the busiest first.
function linkTable(step) {
  const sums = step.onLink.map((items, k) => {
    let busy = 0, bytes = 0;
    for (const item of items) { busy += step.sentFinish[item] - step.sentStart[item]; bytes += step.sentBytes[item]; }
    return {name: visible(step.said.links[k]), sent: items.length, busy, bytes};
  });
  const used = sums.filter((link) => link.sent).sort((a, b) => b.busy - a.busy), idle = sums.length - used.length;
  const rows = used.map(({name, sent, busy, bytes}) => {
    const part = share(busy, step.said.step);
    return [name, count(sent), size(bytes), made("span", null, `${step.seconds(busy)} (${percent(part)})`, meter(part))];
  });
  return [made("div", {className: "gap"}), table([["Link", "text"], ["Transfers"], ["Bytes"], ["Busy"]], rows),
    ...(idle ? [made("p", {className: "note"}, `${counted(idle, "link")} without any transfer ${idle === 1 ? "is" : "are"} not shown.`)] : [])];
}

// The time of each scope on each device.
function scopeTable(step, graph) {
  const devices = step.said.devices.map((device, d) => [visible(device.name), d]).filter(([, d]) => step.said.lanes.some((lane, k) => lane.device === d && step.firstOn[k + 1] > step.firstOn[k]));
  const time = graph.labels.map(() => new Float64Array(step.said.devices.length)), ops = graph.labels.map(() => 0);
  for (let op = 0; op < graph.ops; op++) {
    time[graph.gathered[op]][step.device(op)] += step.finish[op] - step.start[op];
    ops[graph.gathered[op]]++;
  }
  const sum = (k) => time[k].reduce((a, b) => a + b, 0), colours = byTime(step, graph.gathered, graph.labels).colours;
  const rows = graph.labels.map((_, k) => k).filter((k) => ops[k]).sort((a, b) => sum(b) - sum(a));
  filled("scopes", table([["Scope", "text wide"], ["Ops"], ...devices.map(([name]) => [name])], rows.map((k) => [
    made("span", {className: "dot"}, swatch(colours[k]), briefEnd(plain(graph.labels[k], graph.said.common), 120)), count(ops[k]),
    ...devices.map(([, d]) => time[k][d] ? made("span", null, step.seconds(time[k][d]), meter(share(time[k][d], step.said.step))) : "")])));
}

function madeTable(step) {
  const said = step.said, rows = said.made.map(([label, text]) => [label, visible(text)]);
  if (said.stages_s.length) rows.push(["seconds", said.stages_s.map(([name, s]) => `${name} ${s.toFixed(2)}`).join(", ")]);
  rows.push(["settings", said.settings.map(([name, value]) => `${name} ${visible(value)}`).join(", ")]);
  filled("made", table([["", "text"], ["", "text wide"]], rows));
}

function legend(colours, step, graph) {
  const entries = colours.of(step).legend.map(([words, shades]) => made("span", null, ...shades.map((each) => swatch(each)), briefEnd(plain(words, graph.said.common), 50)));
  filled("legend", ...entries, made("span", null, swatch("var(--path)", "line"), "critical path"), made("span", null, "\u2506 lower bound"), made("span", null, swatch("var(--link)"), "transfer"), made("span", null, swatch("var(--memory)"), "bytes alive"));
}
