// The form: a built-in model, or a file.
const UPLOAD = "a file";
const GRAPH_DEF = /\.(pb|pbtxt)$/;
let models = [];

const option = (value, text = value) => made("option", {value}, text);

async function offer() {
  const [found, clusters] = await Promise.all([told("models"), told("clusters")]);
  models = found.models;
  filled("model", ...[...new Set(models.map((m) => m.model)), UPLOAD].map((name) => option(name)));
  filled("of-model", option("", "all"), ...[...new Set(models.map((m) => m.model))].map((name) => option(name)));
  filled("cluster", ...clusters.clusters.map((c) => option(c.name)));
  at("model").value = "rnnlm";
  at("cluster").value = "v100x2-nvlink";
  variants();
}

function variants() {
  const upload = at("model").value === UPLOAD, mine = models.filter((m) => m.model === at("model").value);
  filled("variant", ...mine.map((m) => option(m.variant, `${m.variant}, ${count(m.ops)} ops`)));
  const usual = mine.find((m) => m.default);
  if (usual) at("variant").value = usual.variant;
  at("variant").parentElement.hidden = upload;
  at("file-label").hidden = !upload;
  fetches();
}

function fetches() {
  const file = at("file").files[0];
  at("fetch-label").hidden = at("file-label").hidden || !file || !GRAPH_DEF.test(file.name);
}

async function source() {
  if (at("model").value !== UPLOAD) return {model: at("model").value, variant: at("variant").value};
  const file = at("file").files[0];
  if (!file) throw new Refused(0, {error: "no file is chosen", remedy: "choose a graph file or a GraphDef"});
  at("submitted").textContent = "sending the file …";
  const ops = at("fetch").value.split(",").map((op) => op.trim()).filter(Boolean);
  return {blob: await uploaded(file), name: file.name, ...(GRAPH_DEF.test(file.name) && ops.length ? {fetch: ops} : {})};
}

async function send(request) {
  at("submitted").textContent = "";
  dismiss("submit-refusal");
  try {
    const id = await submitted(typeof request === "function" ? await request() : request);
    at("submitted").textContent = `job ${id} is queued`;
    fine();
    await look();
    watch(id);
  } catch (error) {
    at("submitted").textContent = "";
    refuse("submit-refusal", error);
  }
}

const DEMONSTRATION = {
  kind: "solve", source: {model: "rnnlm", variant: "tiny"}, cluster: "v100x2-nvlink", label: "demonstration",
  settings: {time_limit_s: 10},
};

function formed() {
  at("model").addEventListener("change", variants);
  at("file").addEventListener("change", fetches);
  at("demonstrate").addEventListener("click", () => send(DEMONSTRATION));
  at("submit").addEventListener("submit", (event) => {
    event.preventDefault();
    send(async () => ({
      kind: "solve", source: await source(), cluster: at("cluster").value, label: at("label").value,
      settings: at("seconds").value ? {time_limit_s: Number(at("seconds").value)} : {},
    }));
  });
}
