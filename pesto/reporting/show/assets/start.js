// The page begins: columns are unpacked, the timelines drawn, then the tables filled.

const BEGUN = performance.now();

class Page {
  constructor(graph, steps) {
    Object.assign(this, {graph, steps});
    this.colours = new Colours(graph, steps);
    this.view = new View(Math.max(...steps.map((step) => step.said.step)), this.colours);
    this.timelines = steps.map((step) => new Timeline(step, this.view));
    this.panel = new Panel(graph, steps, (op) => this.choose(op, true));
    this.ops = new Ops(graph, steps[0], this.view, (op, reveal) => this.choose(op, reveal));
    this.view.listeners.push(() => this.draw());
    this.lay();
    this.listen();
  }

  lay() {
    const boxes = this.timelines.map((timeline, k) => {
      const title = this.steps.length > 1 ? [made("p", null, `${visible(this.steps[k].said.label)}: ${this.steps[k].seconds(this.steps[k].said.step)}`)] : [];
      new Moves(timeline, this.view, (op) => this.choose(op), (what, event) => this.tell(timeline, what, event));
      return made("div", {className: "timeline"}, ...title, timeline.canvas);
    });
    filled("canvases", ...boxes);
    filled("colour", ...this.colours.ways.map(([title], k) => made("option", {value: k}, title)));
    const said = this.steps[0].said, source = visible(this.graph.said.source);
    at("title").textContent = brief(source, 200);
    at("where").textContent = `${counted(this.graph.ops, "op")} on ${visible(said.cluster)}, op times ${visible(said.basis)}: ${visible(said.label)}`;
    at("foot").textContent = "Step times are predictions of Pesto's simulator on the costs named above, not measurements. The plan was verified when this page was written.";
  }

  listen() {
    at("in").onclick = () => this.view.zoom(0.5);
    at("out").onclick = () => this.view.zoom(2);
    at("whole").onclick = () => this.view.whole();
    at("colour").onchange = (event) => this.colour(Number(event.target.value));
    at("path").onchange = (event) => { this.view.showPath = event.target.checked; this.view.changed(); };
    let later = 0;
    at("search").oninput = () => { clearTimeout(later); later = setTimeout(() => this.search(), 120); };
    at("search").onkeydown = (event) => { if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1); };
    window.addEventListener("resize", () => this.view.changed());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const timeline of this.timelines) timeline.themed();
      this.view.changed();
    });
  }

  draw() { for (const timeline of this.timelines) timeline.draw(); }

  colour(way) {
    this.colours.way = way;
    legend(this.colours, this.steps[0], this.graph);
    this.view.changed();
  }

  choose(op, reveal = false) {
    this.view.chosen = op;
    this.panel.show(op);
    if (op >= 0) this.view.reveal(this.steps[0].start[op], this.steps[0].finish[op], reveal && this.tiny(op));
    if (this.ops.ops) this.ops.draw();
    this.view.changed();
  }

  tiny(op) { return (this.steps[0].finish[op] - this.steps[0].start[op]) * this.timelines[0].scale < 3; }

  // Marks what the search finds; an empty search marks nothing.
  search() {
    const text = at("search").value.trim();
    this.matches = text ? this.graph.found(text) : [];
    this.view.found = null;
    if (text) {
      this.view.found = new Uint8Array(this.graph.ops);
      for (const op of this.matches) this.view.found[op] = 1;
      this.matches.sort((a, b) => this.steps[0].start[a] - this.steps[0].start[b]);
    }
    at("matches").textContent = text ? `${counted(this.matches.length, "op")} found` : "";
    if (text) at("which").value = "found";
    else if (at("which").value === "found") at("which").value = "all";
    this.ops.refill();
    this.view.changed();
  }

  nextMatch(by) {
    if (!this.matches || !this.matches.length) return;
    const n = this.matches.length, here = this.matches.indexOf(this.view.chosen);
    const next = here < 0 ? 0 : (here + by + n) % n;
    this.choose(this.matches[next], true);
    at("matches").textContent = `${count(next + 1)} of ${counted(n, "op")}`;
  }

  // What the pointer is over.
  tell(timeline, what, event) {
    const tip = at("tip"), step = timeline.step;
    tip.hidden = !what || what.item < 0;
    if (tip.hidden) return;
    const sent = what.row.kind === LINK, op = sent ? step.sentOp[what.item] : what.item;
    const [start, finish] = [what.row.start[what.item], what.row.finish[what.item]];
    const more = sent ? `${size(step.sentBytes[what.item])}, ` : `${this.graph.typeName(op)}, `;
    tip.textContent = `${brief(visible(this.graph.names.of(op)), 140)}\n${more}${step.seconds(finish - start)} from ${step.seconds(start)}`;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
  }

  fill() {
    const step = this.steps[0];
    candidateTable(step);
    boundText(step);
    waitTable(step);
    deviceTable(step);
    scopeTable(step, this.graph);
    madeTable(step);
    against(this.graph, this.steps);
    this.ops.refill();
  }
}

async function begin() {
  const said = JSON.parse(at("facts").textContent);
  const texts = Array.from(document.querySelectorAll("script.packed"), (each) => each.textContent);
  const [shared, ...own] = await Promise.all(texts.map(inflated));
  const graph = new Graph(said.graph, columnsOf(said.graph.columns, shared));
  const steps = said.plans.map((plan, k) => new Step(plan, columnsOf(plan.columns, own[k]), graph));
  const page = new Page(graph, steps);
  cards(steps[0]);
  legend(page.colours, steps[0], graph);
  page.panel.show(-1);
  page.draw();
  window.pestoReport = {page, drawn_ms: performance.now() - BEGUN};
  requestAnimationFrame(() => setTimeout(() => {
    window.pestoReport.painted_ms = performance.now() - BEGUN;
    page.fill();
    window.pestoReport.ready = true;
  }));
}

begin().catch((error) => {
  at("trouble").hidden = false;
  at("trouble").textContent = `This page could not be drawn: ${visible(error.message)}. It needs a browser of 2023 or later.`;
  throw error;
});
