// What all timelines of the page share: the span of time that is seen, what is chosen, searched and coloured.

const LEAST_SPAN = 20; // ticks

class View {
  constructor(longest, colours) {
    this.longest = Math.max(1, longest);
    this.colours = colours;
    this.from = 0;
    this.to = this.longest;
    this.chosen = -1;
    this.found = null; // [n] whether the search finds an op; null where nothing is searched
    this.showPath = true;
    this.listeners = [];
    this.waiting = false;
  }

  get span() { return this.to - this.from; }

  // Draws all timelines once in the next frame, however often it is called.
  changed() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      for (const listener of this.listeners) listener();
    });
  }

  show(from, to) {
    const span = Math.min(this.longest, Math.max(LEAST_SPAN, to - from));
    this.from = Math.min(Math.max(0, from), this.longest - span);
    this.to = this.from + span;
    this.changed();
  }

  // Zooms around a tick that stays where it is; a factor below 1 comes nearer.
  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(this.longest, Math.max(LEAST_SPAN, this.span * factor));
    const share = (around - this.from) / this.span;
    this.show(around - share * span, around + (1 - share) * span);
  }

  move(share) { this.show(this.from + share * this.span, this.to + share * this.span); }

  whole() { this.show(0, this.longest); }

  // Brings a stretch of time into view; one that is too small to be seen is enlarged.
  reveal(start, finish, closer = false) {
    const least = closer ? Math.max(LEAST_SPAN, 12 * (finish - start)) : this.span;
    const span = closer ? Math.min(this.span, least) : Math.max(this.span, finish - start);
    if (!closer && start >= this.from && finish <= this.to) this.changed();
    else this.show((start + finish - span) / 2, (start + finish + span) / 2);
  }
}
