// A timeline on a canvas. Boxes narrower than a pixel are gathered by pixel, so that a row never draws more than its width.

const AXIS = 26;
const NARROW = 1.5; // pixels below which a box is gathered with its neighbours
const THEME = ["ink", "paper", "panel", "faint", "rule", "row", "accent", "path", "busy", "memory", "link"];

class Timeline {
  constructor(step, view) {
    this.step = step;
    this.view = view;
    this.canvas = made("canvas", {tabIndex: 0, role: "application"});
    this.canvas.setAttribute("aria-label", `Timeline of ${visible(step.said.label)}; the tables below say the same`);
    this.canvas.setAttribute("aria-describedby", "keys");
    Object.assign(this, laidOut(step, AXIS + 4));
    this.canvas.style.height = `${this.height}px`;
    this.gathered = {time: new Float64Array(0)};
    this.themed();
  }

  themed() {
    const style = getComputedStyle(document.documentElement);
    this.theme = Object.fromEntries(THEME.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  resized() {
    const width = this.canvas.clientWidth, dense = Math.min(3, window.devicePixelRatio || 1);
    if (this.width === width && this.dense === dense) return;
    [this.width, this.dense] = [width, dense];
    this.gutter = width < 520 ? 84 : 92;
    this.canvas.width = Math.round(width * dense);
    this.canvas.height = Math.round(this.height * dense);
    const pixels = Math.max(1, Math.ceil(width));
    this.gathered = {
      time: new Float64Array(pixels), most: new Float64Array(pixels), item: new Int32Array(pixels),
      path: new Uint8Array(pixels),
    };
  }

  get scale() { return (this.width - this.gutter) / this.view.span; }

  x(tick) { return this.gutter + (tick - this.view.from) * this.scale; }

  tick(x) { return this.view.from + (x - this.gutter) / this.scale; }

  draw() {
    this.resized();
    const pen = this.pen = this.canvas.getContext("2d");
    pen.setTransform(this.dense, 0, 0, this.dense, 0, 0);
    pen.fillStyle = this.theme.paper;
    pen.fillRect(0, 0, this.width, this.height);
    this.colouring = this.view.colours.of(this.step);
    this.drawAxis();
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.width - this.gutter, this.height);
    pen.clip();
    for (const row of this.rows) this.drawRow(row);
    this.drawEnd();
    if (this.view.showPath) this.drawPathLines();
    this.drawChosen();
    pen.restore();
    this.drawNames();
  }

  drawRow(row) {
    this.pen.fillStyle = this.theme.row;
    this.pen.fillRect(this.gutter, row.y, this.x(this.step.said.step) - this.gutter, row.height);
    if (row.kind === MEMORY) this.drawMemory(row);
    else this.drawBoxes(row);
  }

  // Wide boxes one by one; of the others, in each pixel, how much of it they fill and which takes most of it.
  drawBoxes(row) {
    const {time, most, item, path} = this.gathered, scale = this.scale, {items, start, finish} = row;
    const marked = row.kind === LANE ? this.step.onPath : this.step.sentOnPath, wide = [];
    const seen = row.kind === LANE ? this.view.found : null;
    time.fill(0); most.fill(0); path.fill(0);
    for (let k = firstAfter(row, this.view.from); k < items.length; k++) {
      const one = items[k];
      if (start[one] >= this.view.to) break;
      const x = this.x(start[one]), width = (finish[one] - start[one]) * scale;
      if (width >= NARROW) { wide.push(one); continue; }
      const pixel = Math.min(time.length - 1, Math.max(0, Math.floor(x)));
      const weight = width + (seen && seen[one] ? 2 : 0) + 1e-9;
      time[pixel] += width;
      path[pixel] |= marked[one];
      if (weight > most[pixel]) [most[pixel], item[pixel]] = [weight, one];
    }
    this.drawGathered(row, seen);
    for (const one of wide) this.drawBox(row, one, marked[one], !seen || seen[one]);
    this.pen.globalAlpha = 1;
  }

  colourOf(row, item) {
    return row.kind === LINK ? this.theme.link : this.colouring.colours[this.colouring.of[item]];
  }

  drawGathered(row, seen) {
    const {time, most, item, path} = this.gathered, pen = this.pen;
    for (let x = 0; x < most.length;) {
      if (!most[x]) { x++; continue; }
      const first = x, colour = this.colourOf(row, item[x]), level = this.level(time[x], seen, item[x]);
      while (x < most.length && most[x] && this.colourOf(row, item[x]) === colour
        && this.level(time[x], seen, item[x]) === level) x++;
      pen.fillStyle = colour;
      pen.globalAlpha = level;
      pen.fillRect(first, row.y, x - first, row.height);
    }
    pen.globalAlpha = 1;
    if (!this.view.showPath) return;
    pen.fillStyle = this.theme.path;
    for (let x = 0; x < path.length; x++) if (path[x]) pen.fillRect(x, row.y + row.height - 4, 1, 4);
  }

  // How strongly a pixel is filled: fifths, so that neighbours are drawn as one.
  level(time, seen, item) {
    const strength = 0.35 + 0.65 * Math.min(1, Math.ceil(time * 5) / 5);
    return seen && !seen[item] ? 0.16 : strength;
  }

  drawBox(row, item, marked, seen) {
    const pen = this.pen, x = Math.max(this.gutter - 2, this.x(row.start[item]));
    const end = Math.min(this.width + 2, this.x(row.finish[item])), width = end - x;
    pen.globalAlpha = seen ? 1 : 0.16;
    pen.fillStyle = this.colourOf(row, item);
    pen.fillRect(x, row.y, width > 3 ? width - 0.75 : width, row.height);
    if (marked && this.view.showPath) {
      pen.fillStyle = this.theme.path;
      pen.fillRect(x, row.y + row.height - 4, width, 4);
    }
    if (width > 34 && row.kind === LANE && !row.low) this.write(row, item, x, width);
  }

  write(row, item, x, width) {
    const pen = this.pen, text = brief(visible(this.step.graph.names.leaf(item)), Math.floor((width - 8) / 6.4));
    pen.fillStyle = this.colouring.light[this.colouring.of[item]] ? "#10151b" : "#ffffff";
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    if (text.length > 2) pen.fillText(text, x + 5, row.y + row.height / 2 - 1);
  }

  // Of each pixel the most bytes alive in it.
  drawMemory(row) {
    const pen = this.pen, most = row.device.peak > 0.2 * row.device.capacity ? row.device.capacity : 1.25 * row.device.peak;
    const height = (bytes) => (bytes / most) * (row.height - 2), {at: when, level} = row, base = row.y + row.height;
    let k = 0;
    for (let low = 0, high = when.length; low < high;) {
      const middle = (low + high) >> 1;
      if (when[middle] <= this.view.from) { k = middle; low = middle + 1; } else high = middle;
    }
    pen.beginPath();
    pen.moveTo(this.gutter, base);
    const last = Math.min(this.width, this.x(this.step.said.step));
    for (let x = this.gutter; x < last; x++) {
      let highest = level[k] || 0;
      for (const until = this.tick(x + 1); k + 1 < when.length && when[k + 1] < until;) highest = Math.max(highest, level[++k]);
      pen.lineTo(x, base - height(highest));
      pen.lineTo(x + 1, base - height(highest));
    }
    pen.lineTo(last, base);
    pen.fillStyle = this.theme.memory;
    pen.fill();
    this.drawCapacity(row, base - height(row.device.capacity), most === row.device.capacity);
  }

  drawCapacity(row, y, within) {
    const pen = this.pen, {peak, capacity} = row.device;
    const text = `peak ${size(peak)} of ${size(capacity)}${within ? "" : " (above this row)"}`;
    pen.strokeStyle = this.theme.path;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    if (within) { pen.moveTo(this.gutter, y + 0.5); pen.lineTo(this.width, y + 0.5); }
    pen.stroke();
    pen.setLineDash([]);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "top";
    const width = pen.measureText(text).width + 10;
    pen.fillStyle = this.theme.paper;
    pen.globalAlpha = 0.82;
    pen.fillRect(this.width - width - 2, row.y + 5, width, 16);
    pen.globalAlpha = 1;
    pen.fillStyle = this.theme.ink;
    pen.fillText(text, this.width - width + 3, row.y + 7);
  }

  // Lines between rows, where the critical path goes from one to another.
  drawPathLines() {
    const {step, pen} = this, rowOf = new Map(this.rows.filter((row) => row.kind === LANE).map((row) => [row.lane, row]));
    pen.strokeStyle = this.theme.path;
    pen.globalAlpha = 0.7;
    pen.beginPath();
    for (const op of step.pathOps) {
      const before = step.after[op];
      if (before < 0 || step.lane[before] === step.lane[op]) continue;
      if (step.start[op] < this.view.from || step.finish[before] > this.view.to) continue;
      const [a, b] = [rowOf.get(step.lane[before]), rowOf.get(step.lane[op])];
      pen.moveTo(this.x(step.finish[before]), a.y + a.height - 2);
      pen.lineTo(this.x(step.start[op]), b.y + b.height - 2);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawEnd() {
    const pen = this.pen;
    for (const [tick, colour, text] of [[this.step.said.bound, this.theme.faint, "bound"], [this.step.said.step, this.theme.ink, ""]]) {
      const x = Math.round(this.x(tick)) - 0.5;
      pen.strokeStyle = colour;
      pen.setLineDash(text ? [2, 3] : []);
      pen.beginPath();
      pen.moveTo(x, AXIS);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  outline(row, item, colour, thick) {
    const x = this.x(row.start[item]), width = Math.max(3, (row.finish[item] - row.start[item]) * this.scale);
    this.pen.strokeStyle = colour;
    this.pen.lineWidth = thick;
    this.pen.strokeRect(x - 0.5, row.y - 1, width, row.height + 2);
    this.pen.lineWidth = 1;
  }

  // The chosen op, with lines from what it waited for, and to those that wait for it.
  drawChosen() {
    const {step, pen} = this, op = this.view.chosen;
    if (op < 0) return;
    const rowOf = new Map(this.rows.filter((row) => row.kind === LANE).map((row) => [row.lane, row]));
    const line = (from, to, colour) => {
      const [a, b] = [rowOf.get(step.lane[from]), rowOf.get(step.lane[to])];
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(this.x(step.finish[from]), a.y + a.height / 2);
      pen.lineTo(this.x(step.start[to]), b.y + b.height / 2);
      pen.stroke();
    };
    for (let k = step.firstWaiting[op]; k < Math.min(step.firstWaiting[op] + 60, step.firstWaiting[op + 1]); k++) {
      line(op, step.waiting[k], this.theme.accent);
    }
    if (step.after[op] >= 0) {
      line(step.after[op], op, this.theme.path);
      this.outline(rowOf.get(step.lane[step.after[op]]), step.after[op], this.theme.path, 1.5);
    }
    this.outline(rowOf.get(step.lane[op]), op, this.theme.ink, 2.5);
  }

  drawAxis() {
    const pen = this.pen, room = Math.max(2, Math.floor((this.width - this.gutter) / 105));
    const raw = (this.view.span * this.step.tick) / room, unit = 10 ** Math.floor(Math.log10(raw));
    const spacing = [1, 2, 5, 10].map((k) => k * unit).find((value) => value >= raw) / this.step.tick;
    pen.font = "11.5px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const digits = Math.max(0, -Math.floor(Math.log10(spacing * this.step.tick * 1e3) + 1e-9));
    const micro = digits > 3;
    for (let k = Math.ceil(this.view.from / spacing); k * spacing <= this.view.to; k++) {
      const x = Math.round(this.x(k * spacing)) + 0.5, ms = k * spacing * this.step.tick * 1e3;
      pen.fillStyle = this.theme.rule;
      pen.fillRect(x, AXIS - 5, 1, this.height);
      pen.fillStyle = this.theme.faint;
      const text = micro ? `${(ms * 1e3).toFixed(Math.max(0, digits - 3))} µs` : `${ms.toFixed(digits)} ms`;
      if (x + 60 < this.width) pen.fillText(text, x + 4, 12);
    }
  }

  drawNames() {
    const pen = this.pen;
    pen.fillStyle = this.theme.paper;
    pen.fillRect(0, 0, this.gutter - 1, this.height);
    pen.textBaseline = "middle";
    for (const row of this.rows) {
      pen.font = row.kind === LANE && !row.low ? "600 12px system-ui, sans-serif" : "11px system-ui, sans-serif";
      pen.fillStyle = row.kind === LANE && !row.low ? this.theme.ink : this.theme.faint;
      pen.fillText(brief(row.name, Math.floor((this.gutter - 10) / 6.4)), 8, row.y + row.height / 2);
    }
    pen.font = "600 10.5px system-ui, sans-serif";
    pen.fillStyle = this.theme.faint;
    for (const {title, y} of this.titles) pen.fillText(title.toUpperCase(), 8, y - 4);
  }

  // The row at a height, and the op or transfer that is there.
  under(x, y) {
    const row = this.rows.find((each) => y >= each.y - 2 && y < each.y + each.height + 3);
    if (!row || x < this.gutter) return {row, item: -1};
    return {row, item: row.kind === MEMORY ? -1 : itemAt(row, this.tick(x), 4 / this.scale)};
  }
}
