// Requests to the service that the page came from. A token is kept for this tab alone.
const KEPT = "pesto-token";

class Refused extends Error {
  constructor(status, said) {
    super(said.remedy ? `${said.error} - ${said.remedy}` : said.error || `the service answered ${status}`);
    this.status = status;
  }
}

function headers(more) {
  const token = sessionStorage.getItem(KEPT);
  return {...more, ...(token ? {Authorization: `Bearer ${token}`} : {})};
}

async function asked(path, {method = "GET", body, more, signal} = {}) {
  const answer = await fetch(`v1/${path}`, {method, body, headers: headers(more), signal, cache: "no-store"});
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401) at("door").hidden = false;
  throw new Refused(answer.status, said);
}

const told = async (path, how) => (await asked(path, how)).json();

async function submitted(request) {
  const key = hex(crypto.getRandomValues(new Uint8Array(16)));
  const more = {"Content-Type": "application/json", "Idempotency-Key": key};
  return (await told("jobs", {method: "POST", body: JSON.stringify(request), more})).id;
}

async function uploaded(file) {
  const bytes = new Uint8Array(await file.arrayBuffer()), sha = await sha256(bytes);
  if (!(await told(`blobs?sha256=${sha}`)).length) await asked(`blobs/${sha}`, {method: "PUT", body: bytes});
  return sha;
}

// Say above everything else why jobs cannot be looked at, until they can.
function trouble(error) {
  const unreached = error instanceof TypeError;
  at("trouble").textContent = unreached ? "The service cannot be reached. What it does goes on; it is asked again." : visible(error.message);
  at("trouble").hidden = false;
}

function fine() {
  at("trouble").hidden = true;
}

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

// Each event of a job once and in order, over any number of streams, until its end or until it is told to stop.
async function follow(id, hear, signal) {
  let last = 0, over = false;
  while (!over && !signal.aborted) {
    try {
      const answer = await asked(`jobs/${id}/events`, {more: {"Last-Event-ID": String(last)}, signal});
      for await (const event of eventsOf(answer.body)) {
        if (event.number <= last) continue;
        last = event.number;
        over = event.kind === "done";
        hear(event);
      }
      fine();
      if (!over) over = (await told(`jobs/${id}`, {signal})).events <= last && !(await going(id, signal));
    } catch (error) {
      if (signal.aborted || [401, 404].includes(error.status)) return;
      trouble(error);
    }
    if (!over) await pause(1000);
  }
}

const ENDED = ["done", "failed", "cancelled"];
const going = async (id, signal) => !ENDED.includes((await told(`jobs/${id}`, {signal})).state);

async function* eventsOf(body) {
  const reader = body.getReader(), decoder = new TextDecoder();
  let left = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const found = (left + decoder.decode(value, {stream: true})).split("\n\n");
    left = found.pop();
    for (const block of found) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.id) yield {number: Number(fields.id), kind: fields.event, data: JSON.parse(fields.data)};
    }
  }
}
