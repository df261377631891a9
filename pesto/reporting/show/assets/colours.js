// What ops are coloured by: scope, type, slack, what they waited for, and whether another plan has them elsewhere.

const HUES = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#e3b93a", "#ff9da7", "#9c755f",
  "#8cd17d", "#5b6fd6", "#d37295"];
const OTHER = "#98a2ad";
const COOLING = ["#d4351c", "#ef8a3d", "#efc04d", "#86bd84", "#4f9db5", "#8693a5"];
const SLACKS = [0.001, 0.01, 0.05, 0.2]; // shares of the step
const CAUSES = [["began with the step", "#98a2ad"], ["waited for data", "#4e79a7"], ["waited for a transfer", "#b07aa1"],
  ["waited for its device", "#f28e2b"]];
const BACKWARD = /^(?:gradients(?:_\d+)?|gradient_tape)\//;

function mixed(colour, other, share) {
  const part = (text, k) => parseInt(text.slice(2 * k + 1, 2 * k + 3), 16);
  const both = [0, 1, 2].map((k) => Math.round(part(colour, k) * (1 - share) + part(other, k) * share));
  return `#${both.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

// Whether dark text is read better on a colour than white.
function isLight(colour) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 150;
}

// A colouring: [n] class of each op, the colour of each class, and what a legend says: [words, colours].
function colouring(of, colours, legend) {
  return {of, colours, light: colours.map(isLight), legend};
}

// The sums of ops' times by class.
function totals(step, of, classes) {
  const sums = new Float64Array(classes);
  for (let op = 0; op < of.length; op++) sums[of[op]] += step.finish[op] - step.start[op];
  return sums;
}

// What classes share a hue: of a gradient's scope, the scope that it is the gradient of, where that is one.
function families(labels) {
  const known = new Set(labels);
  return labels.map((label) => {
    if (!BACKWARD.test(label)) return label;
    const stripped = label.replace(BACKWARD, "");
    for (let parts = stripped.split("/"); parts.length; parts.pop()) {
      if (known.has(parts.join("/"))) return parts.join("/");
    }
    return stripped;
  });
}

// A scope's name without what all of the model shares, and with a sign in place of what its gradients begin with.
function plain(label, common) {
  const stripped = label.replace(BACKWARD, ""), parts = stripped.split("/");
  for (const scope of common) {
    if (parts.length < 2 || parts[0] !== scope) break;
    parts.shift();
  }
  return (stripped === label ? "" : "\u2207\u00a0") + parts.join("/");
}

// Hues for the families that take most of the time; gradients are darker; the rest is grey.
function byTime(step, of, labels) {
  const family = families(labels), sums = totals(step, of, labels.length), time = new Map();
  family.forEach((name, k) => time.set(name, (time.get(name) || 0) + sums[k]));
  const ranked = [...time.keys()].filter((name) => time.get(name) > 0).sort((a, b) => time.get(b) - time.get(a));
  const hue = new Map(ranked.slice(0, HUES.length).map((name, k) => [name, HUES[k]]));
  const colours = labels.map((label, k) => {
    const own = hue.get(family[k]) || OTHER;
    return BACKWARD.test(label) ? mixed(own, "#000000", 0.3) : own;
  });
  const legend = [...hue].map(([name]) => [name, [...new Set(colours.filter((_, k) => family[k] === name && sums[k]))]]);
  if (labels.some((label, k) => BACKWARD.test(label) && sums[k])) legend.push(["darker: gradients", []]);
  if (ranked.length > hue.size) legend.push([`${ranked.length - hue.size} more`, [OTHER]]);
  return colouring(of, colours, legend);
}

function bySlack(step) {
  const of = new Uint8Array(step.graph.ops);
  for (let op = 0; op < of.length; op++) {
    const share = step.slack[op] / step.said.step, beyond = SLACKS.findIndex((most) => share < most);
    of[op] = step.slack[op] <= 0 ? 0 : beyond < 0 ? SLACKS.length + 1 : beyond + 1;
  }
  const between = SLACKS.slice(1).map((most, k) => `${percent(SLACKS[k])} to ${percent(most)}`);
  const words = ["no slack", `less than ${percent(SLACKS[0])} of the step`, ...between, `${percent(SLACKS.at(-1))} and more`];
  return colouring(of, COOLING, words.map((text, k) => [text, [COOLING[k]]]));
}

function byMove(step, other) {
  const of = new Uint8Array(step.graph.ops);
  for (let op = 0; op < of.length; op++) of[op] = step.deviceName(op) === other.deviceName(op) ? 0 : 1;
  const words = [["on the same device in both plans", OTHER], ["on another device", HUES[1]]];
  return colouring(of, words.map(([, colour]) => colour), words.map(([text, colour]) => [text, [colour]]));
}

// The ways to colour a step by their titles; each is computed when it is chosen.
function colourings(graph, steps) {
  const lead = steps[0], types = graph.said.types.map(visible);
  const ways = [
    ["by scope", () => byTime(lead, graph.gathered, graph.labels), false],
    ["by type", () => byTime(lead, graph.type, types), false],
    ["by slack", (step) => bySlack(step), true],
    ["by what it waited for", (step) =>
      colouring(step.cause, CAUSES.map(([, c]) => c), CAUSES.map(([text, c]) => [text, [c]])), true],
  ];
  if (steps.length > 1) ways.push(["by device, moved or not", (step) => byMove(step, step === lead ? steps[1] : lead), true]);
  return ways;
}

// The colouring of a step in a way, made once; those that say the same of all steps are made once for all.
class Colours {
  constructor(graph, steps) {
    this.ways = colourings(graph, steps);
    this.known = new Map();
    this.way = 0;
  }

  of(step) {
    const [, make, own] = this.ways[this.way], key = own ? step : this;
    if (!this.known.has(key)) this.known.set(key, []);
    const made = this.known.get(key);
    return made[this.way] ||= make(step);
  }
}
