// One job, live: what it has found over time, its end, and what it wrote.
const SVG = "http://www.w3.org/2000/svg";
const HIGH = 260, LEFT = 84, RIGHT = 16, TOP = 14, LOW = 30;
let watched = "", wrote = "", leaving = new AbortController(), found = [];

function watch(id) {
  leaving.abort();
  leaving = new AbortController();
  watched = id;
  dismiss("job-refusal");
  found = [];
  history.replaceState(null, "", `#${id}`);
  at("job").hidden = false;
  at("shown").hidden = true;
  at("shown").removeAttribute("src");
  for (const part of ["job-title", "cards", "log", "request"]) filled(part);
  for (const button of ["cancel", "plan", "report"]) at(button).hidden = true;
  drawn();
  shown(id).catch(missed);
  follow(id, (event) => { if (id === watched) heard(event); }, leaving.signal).then(() => { if (id === watched) shown(id).catch(missed); });
  listed();
}

// A job that there is not is refused beside it, where that stays; what passes by itself is said above all.
function missed(error) {
  if (error.status === 404) refuse("job-refusal", error);
  else trouble(error);
}

function heard(event) {
  const {kind, data} = event;
  if (kind === "incumbent" || kind === "bound") {
    const before = found.at(-1) || {best: null};
    found.push({at: data.seconds, best: kind === "incumbent" ? data.best_s : before.best, bound: data.bound_s});
    drawn();
  }
  if (kind === "stage" && data.name === "queued") found = [];
  if (kind === "log") at("log").append(made("p", {className: data.level === "error" ? "bad" : ""}, visible(data.text)));
  if (at("log").children.length > 50) at("log").firstChild.remove();
  shown(watched).catch(missed);
}

let showing = false, again = false;

// The job as it is, however fast its events come: once at a time.
async function shown(id) {
  if (showing) { again = true; return; }
  showing = true;
  try {
    do {
      again = false;
      const job = await told(`jobs/${watched || id}`);
      if (job.id === watched) told_of(job);
    } while (again);
  } finally {
    showing = false;
  }
}

function told_of(job) {
  renewed("job-title", `${called(job)} `, made("small", {className: "note"}, job.id));
  const facts = [
    ["state", `${job.state}${place(job)}`, job.stage === job.state ? "" : job.stage],
    ["of", about(job), job.cluster], ["best", best(job), "of a step, predicted"],
    ["lower bound", job.bound_s === null ? "–" : duration(job.bound_s), ""], ["gap", gap(job), ""],
    ["workers", `${job.seconds.toFixed(1)} s`, `attempt ${job.attempt}`],
  ];
  renewed("cards", ...facts.map(([name, value, small]) => made("div", null, made("dt", null, name),
    made("dd", null, value, ...(small ? [made("small", null, visible(small))] : [])))));
  at("asked").hidden = !job.request;
  const lines = JSON.stringify({request: job.request, reads: job.reads, token: job.who}, null, 2).split("\n");
  renewed("request", lines.map(visible).join("\n"));
  if (job.error) {
    const said = job.remedy ? `${job.error} - ${job.remedy}` : job.error;
    if (!at("log").querySelector(".end")) at("log").append(made("p", {className: "bad end"}, visible(said)));
  }
  hide("cancel", ENDED.includes(job.state), "job-title");
  wrote = ["plan.json", "split.json"].find((file) => job.files.includes(file)) || "";
  at("plan").hidden = !wrote;
  at("report").hidden = !job.files.includes("report.html");
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Best and bound as steps over the seconds of the solve.
function drawn() {
  const values = found.flatMap((one) => [one.best, one.bound]).filter((value) => value > 0);
  at("chart").hidden = at("legend").hidden = values.length === 0;
  if (!values.length) return;
  const wide = Math.max(240, at("chart").clientWidth - 2);
  const last = Math.max(...found.map((one) => one.at), 1e-3), most = Math.max(...values), least = Math.min(...values);
  const room = (most - least) * 0.08 || most * 0.1, low = least - room, high = most + room;
  const x = (seconds) => LEFT + (wide - LEFT - RIGHT) * seconds / last;
  const y = (value) => TOP + (HIGH - TOP - LOW) * (high - value) / (high - low);
  const lines = [0, 0.5, 1].map((share) => low + room + share * (high - low - 2 * room));
  filled("chart", svg("svg", {viewBox: `0 0 ${wide} ${HIGH}`},
    ...lines.flatMap((value) => [
      svg("line", {class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value)}),
      svg("text", {x: LEFT - 8, y: y(value) + 4, "text-anchor": "end"}, duration(value)),
    ]),
    svg("text", {x: LEFT, y: HIGH - 8}, "0 s"),
    svg("text", {x: wide - RIGHT, y: HIGH - 8, "text-anchor": "end"}, `${last.toFixed(1)} s`),
    ...["bound", "best"].map((name) => svg("polyline", {class: name, points: steps(name, x, y, last)}))));
}

function steps(name, x, y, last) {
  const points = [];
  let before = null;
  for (const one of found) {
    if (!(one[name] > 0)) continue;
    if (before !== null) points.push([x(one.at), y(before)]);
    points.push([x(one.at), y(one[name])]);
    before = one[name];
  }
  if (before !== null) points.push([x(last), y(before)]);
  return points.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" ");
}

async function save(path, name) {
  const link = made("a", {href: URL.createObjectURL(await (await asked(path)).blob()), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// A report has no access to this page: it is fetched, with the token where there is one, and told to a frame of no origin.
async function reported() {
  const id = watched, frame = at("shown"), text = await (await asked(`jobs/${id}/report`)).text();
  if (id !== watched) return;
  frame.addEventListener("load", () => { if (id === watched) frame.contentWindow.postMessage(text, "*"); }, {once: true});
  frame.src = "frame";
  frame.hidden = false;
  frame.scrollIntoView({block: "nearest"});
}
