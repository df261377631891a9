// The rows of a timeline: processors, the bytes alive on each device, and links, the busiest first.

const LANE = "lane", LINK = "link", MEMORY = "memory";
const HEIGHTS = {[LANE]: 36, [LINK]: 18, [MEMORY]: 54};
const TALL = 54; // of a processor where there are few
const FEW = 4;
const LOW = 18; // of a processor that has next to nothing to do
const HARDLY = 1e-3; // share of the step, or of a memory, below which there is next to nothing

function laneRows(step) {
  const found = step.said.lanes.map((lane, k) => ({
    kind: LANE, name: visible(lane.name), items: step.order.subarray(step.firstOn[k], step.firstOn[k + 1]),
    start: step.start, finish: step.finish, fast: step.isFast(k), lane: k, low: lane.busy < HARDLY * step.said.step,
  }));
  const used = found.filter((row) => row.items.length), few = used.filter((row) => !row.low).length <= FEW;
  for (const row of used) row.height = row.low ? LOW : few ? TALL : HEIGHTS[LANE];
  return used.sort((a, b) => b.fast - a.fast || a.lane - b.lane);
}

function linkRows(step) {
  const found = step.said.links.map((name, k) => ({
    kind: LINK, name: visible(name), items: step.onLink[k], start: step.sentStart, finish: step.sentFinish,
  }));
  for (const row of found) row.busy = row.items.reduce((sum, k) => sum + row.finish[k] - row.start[k], 0);
  return found.filter((row) => row.items.length).sort((a, b) => b.busy - a.busy);
}

function memoryRows(step) {
  return step.said.devices.map((device, d) => ({
    kind: MEMORY, name: visible(device.name), device, ...step.memory[d], fast: device.kind !== "cpu",
  })).filter((row) => row.fast ? row.device.peak > 0 : row.device.peak > HARDLY * row.device.capacity).sort((a, b) => b.fast - a.fast);
}

// All rows with their places from above; a title stands over each kind.
function laidOut(step, top) {
  const rows = [], titles = [];
  let y = top;
  for (const [title, found] of [["", laneRows(step)], ["bytes alive", memoryRows(step)], ["links", linkRows(step)]]) {
    if (title && found.length) {
      titles.push({title, y: y + 15});
      y += 20;
    }
    for (const row of found) {
      const height = row.height || HEIGHTS[row.kind];
      rows.push({...row, y, height});
      y += height + (row.kind === LINK ? 3 : 6);
    }
  }
  return {rows, titles, height: y + 4};
}

// The first item of a row that ends after a tick; items of a row end in the order in which they stand.
function firstAfter(row, tick) {
  let low = 0, high = row.items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.finish[row.items[middle]] > tick) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The item of a row at a tick, or the one nearest to it within a reach; -1 for none.
function itemAt(row, tick, reach) {
  const k = firstAfter(row, tick);
  let best = -1, least = reach;
  for (let i = Math.max(0, k - 1); i < Math.min(row.items.length, k + 2); i++) {
    const item = row.items[i], away = Math.max(row.start[item] - tick, tick - row.finish[item], 0);
    if (away < least || (away === 0 && least === 0) || (best < 0 && away <= least)) [best, least] = [item, away];
  }
  return best;
}
