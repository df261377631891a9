// The jobs, the newest first, and which two of them are compared.
const LOOK_MS = 2000;
const chose = new Set();
let jobs = [], pages = 1;

function age(job) {
  const seconds = Math.max(0, Date.now() / 1000 - job.created);
  for (const [unit, much] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * much) return `${Math.round(seconds / much)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

const best = (job) => (job.best_s === null ? "–" : duration(job.best_s));
const gap = (job) => (job.gap === null ? "–" : percent(job.gap));
const called = (job) => visible(job.label || job.kind);
const place = (job) => (job.place === null ? "" : `, place ${job.place}`);
const state = (job) => made("span", {className: `state ${job.state}`}, `${job.state}${place(job)}`);

const FILTERS = {search: "search", state: "state", kind: "kind", "of-model": "model"};
const chosen = () => ["age", ...Object.keys(FILTERS)].map((id) => at(id).value.trim());
const filtering = () => chosen().some(Boolean);

function wanted() {
  const given = new URLSearchParams({most: 50});
  for (const [id, name] of Object.entries(FILTERS)) if (at(id).value.trim()) given.set(name, at(id).value.trim());
  if (at("age").value) given.set("since", Math.max(0, Date.now() / 1000 - at("age").value).toFixed(0));
  return given;
}

// With several filters a page may be short: as many as eight are asked for to fill one.
async function look() {
  const asking = wanted(), mine = String(chosen());
  let found = [], after = null, counts = null;
  for (let k = 0; k < 8 * pages && found.length < 50 * pages && (k === 0 || after); k += 1) {
    if (after) asking.set("after", after);
    else asking.set("counts", "true");
    const said = await told(`jobs?${asking}`);
    asking.delete("counts");
    found = found.concat(said.jobs);
    after = said.after;
    counts = counts || said.counts;
  }
  if (String(chosen()) !== mine) return;
  jobs = found;
  tallied(counts);
  hide("more", after === null, "search");
  at("door").hidden = true;
  fine();
  listed();
}

function tallied(counts) {
  const some = Object.entries(counts).filter(([, many]) => many > 0);
  renewed("counts", some.map(([name, many]) => `${count(many)}${many >= 10000 ? "+" : ""} ${name}`).join(", "));
}

const about = (job) => visible([job.source, job.variant].filter(Boolean).join(" ") || job.kind);

function listed() {
  const any = jobs.length > 0;
  at("empty").hidden = any || filtering();
  const going = jobs.filter((job) => ["running", "cancelling"].includes(job.state)).length;
  const waiting = jobs.filter((job) => job.state === "queued").length;
  renewed("where", `${counted(jobs.length, "job")} shown, ${going} running, ${waiting} waiting`);
  const columns = [["label", "text wide"], ["of", "text late"], ["state", "text"], ["best", ""], ["gap", ""], ["age", "late"], ["id", "text late"]];
  const rows = jobs.map((job) => [opener(job), about(job), state(job), best(job), gap(job), age(job), job.id]);
  renewed("queue", any ? table(columns, rows, (k) => jobs[k].id === watched) : made("p", {className: "note"}, "None."));
  paired();
}

function opener(job) {
  const found = made("button", {type: "button", className: "name"}, called(job));
  found.dataset.job = job.id;
  return found;
}

async function looking() {
  for (;;) {
    if (!document.hidden) await look().catch(trouble);
    await pause(LOOK_MS);
  }
}

function paired() {
  const ended = jobs.filter((job) => job.files.includes("plan.json"));
  at("compare").hidden = ended.length < 2;
  for (const [id, usual] of [["first", 1], ["second", 0]]) {
    const chosen = at(id).value;
    if (document.activeElement === at(id)) continue;
    filled(id, ...ended.map((job) => option(job.id, `${called(job)}, ${best(job)} (${job.id})`)));
    at(id).value = chose.has(id) && ended.some((job) => job.id === chosen) ? chosen : ended[usual] ? ended[usual].id : "";
  }
}

async function compared() {
  const said = await told(`diff?a=${at("first").value}&b=${at("second").value}`);
  const bytes = said.sent_bytes.map((b) => (b === null ? "–" : size(b)));
  const facts = [
    ["step", ...said.step_s.map(duration)], ["lower bound", ...said.bound_s.map(duration)],
    ["cluster", ...said.cluster.map(visible)], ["transfers", ...said.transfers.map(count)], ["sent", ...bytes],
  ];
  const devices = said.devices.flatMap((d) => [
    [`${visible(d.name)}: ops`, ...d.ops.map(count)], [`${visible(d.name)}: busy`, ...d.busy_s.map(duration)],
  ]);
  const moved = `${counted(said.moved.ops, "op")} of ${count(said.ops.both)} on another device; `
    + `${count(said.order.turned)} of ${count(said.order.pairs)} pairs run the other way round`;
  const groups = said.moved.groups.slice(0, 12).map((g) => [visible(g.scope), visible(g.before), visible(g.after), count(g.ops), duration(g.seconds)]);
  const kinds = [["moved", "text wide"], ["from", "text"], ["to", "text"], ["ops", ""], ["time", ""]];
  filled("difference", table([["", "text"], ["first", ""], ["second", ""]], [...facts, ...devices]),
    made("p", {className: "note"}, moved), ...(groups.length ? [made("p"), table(kinds, groups)] : []));
}
