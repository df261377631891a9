// What hands do to a timeline: wheel, drag, pinch, click, keys.

const CLICK = 4; // pixels that a press may move and still be a click

class Moves {
  constructor(timeline, view, choose, told) {
    Object.assign(this, {timeline, view, choose, told});
    this.pressed = new Map(); // pointer -> where it is
    const canvas = this.canvas = timeline.canvas;
    canvas.addEventListener("wheel", (event) => this.wheel(event), {passive: false});
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => told(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  x(event) { return event.clientX - this.canvas.getBoundingClientRect().left; }

  y(event) { return event.clientY - this.canvas.getBoundingClientRect().top; }

  // Zooms; sideways, or with Shift, it moves. What cannot zoom out further scrolls the page.
  wheel(event) {
    const view = this.view, pixels = event.deltaMode ? 30 : 1;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
      view.move((sideways * pixels) / this.timeline.width);
    } else {
      if (event.deltaY > 0 && view.span >= view.longest && !event.ctrlKey) return;
      view.zoom(Math.exp(event.deltaY * pixels * (event.ctrlKey ? 0.01 : 0.002)), this.timeline.tick(this.x(event)));
    }
    event.preventDefault();
    this.told(null);
  }

  down(event) {
    if (event.button) return;
    this.pressed.set(event.pointerId, {x: this.x(event), y: this.y(event)});
    this.travelled = this.pressed.size > 1 ? CLICK + 1 : 0;
    this.canvas.setPointerCapture(event.pointerId);
  }

  moved(event) {
    const before = this.pressed.get(event.pointerId), x = this.x(event), y = this.y(event);
    if (!before) return this.told(event.pointerType === "touch" ? null : this.timeline.under(x, y), event);
    this.travelled += Math.abs(x - before.x) + Math.abs(y - before.y);
    if (this.pressed.size === 1) this.drag(x - before.x);
    else this.pinch(event.pointerId, before.x, x);
    this.pressed.set(event.pointerId, {x, y});
    return undefined;
  }

  drag(pixels) {
    if (this.travelled <= CLICK) return;
    this.canvas.classList.add("dragged");
    this.told(null);
    this.view.move(-pixels / (this.timeline.width - this.timeline.gutter));
  }

  // One of two fingers moves: the ticks below both stay below them.
  pinch(pointer, before, x) {
    const other = [...this.pressed].find(([id]) => id !== pointer)[1].x, apart = Math.abs(x - other);
    if (apart > 8) this.view.zoom(Math.abs(before - other) / apart, this.timeline.tick(other));
  }

  up(event) {
    const there = this.pressed.get(event.pointerId);
    this.pressed.delete(event.pointerId);
    this.canvas.classList.remove("dragged");
    if (!there || event.type !== "pointerup" || this.travelled > CLICK) return;
    const {row, item} = this.timeline.under(there.x, there.y);
    if (!row || row.kind === MEMORY) return;
    this.choose(row.kind === LINK && item >= 0 ? this.timeline.step.sentOp[item] : item);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.keys()[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  keys() {
    const view = this.view;
    return {
      "+": () => view.zoom(0.6), "=": () => view.zoom(0.6), "-": () => view.zoom(1 / 0.6), "0": () => view.whole(),
      ArrowLeft: () => view.move(-0.15), ArrowRight: () => view.move(0.15),
      Home: () => view.show(0, view.span), End: () => view.show(view.longest - view.span, view.longest),
      n: () => this.beside(1), p: () => this.beside(-1),
      ArrowUp: () => this.otherRow(-1), ArrowDown: () => this.otherRow(1),
      Enter: () => this.choose(this.inTheMiddle()), " ": () => this.choose(this.inTheMiddle()),
      w: () => this.cause(), z: () => this.closer(), Escape: () => this.choose(-1), "/": () => at("search").focus(),
    };
  }

  get lanes() { return this.timeline.rows.filter((row) => row.kind === LANE); }

  // The op nearest to the middle of the view, on the chosen op's row, or else on the first.
  inTheMiddle(row = this.ownRow() || this.lanes[0]) {
    return row ? itemAt(row, (this.view.from + this.view.to) / 2, Infinity) : -1;
  }

  ownRow() {
    const op = this.view.chosen;
    return op < 0 ? null : this.lanes.find((row) => row.lane === this.timeline.step.lane[op]);
  }

  beside(by) {
    const {step} = this.timeline, op = this.view.chosen;
    if (op < 0) return this.choose(this.inTheMiddle());
    const place = step.place[op] + by, next = step.order[place];
    if (next !== undefined && step.lane[next] === step.lane[op]) this.choose(next);
    return undefined;
  }

  otherRow(by) {
    const lanes = this.lanes, here = lanes.indexOf(this.ownRow()), {step} = this.timeline, op = this.view.chosen;
    const row = lanes[here < 0 ? 0 : Math.min(lanes.length - 1, Math.max(0, here + by))];
    if (row) this.choose(op < 0 ? this.inTheMiddle(row) : itemAt(row, (step.start[op] + step.finish[op]) / 2, Infinity));
  }

  cause() {
    const op = this.view.chosen;
    if (op >= 0 && this.timeline.step.after[op] >= 0) this.choose(this.timeline.step.after[op]);
  }

  closer() {
    const op = this.view.chosen, {step} = this.timeline;
    if (op >= 0) this.view.reveal(step.start[op], step.finish[op], true);
  }
}
