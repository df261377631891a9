// Hands on the page, and the first look.
function begin() {
  formed();
  const on = (id, place, act) => at(id).addEventListener("click", () => {
    dismiss(place);
    Promise.resolve(act()).catch((error) => refuse(place, error));
  });
  on("cancel", "job-refusal", () => asked(`jobs/${watched}`, {method: "DELETE"}).then(() => shown(watched)));
  on("plan", "job-refusal", () => save(`jobs/${watched}/files/${wrote}`, wrote));
  on("report", "job-refusal", reported);
  on("more", "queue-refusal", () => { pages += 1; return look(); });
  const found = () => { pages = 1; dismiss("queue-refusal"); look().catch((error) => refuse("queue-refusal", error)); };
  at("find").addEventListener("change", found);
  at("find").addEventListener("submit", (event) => { event.preventDefault(); found(); });
  at("queue").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-job]");
    if (button) watch(button.dataset.job);
  });
  at("pair").addEventListener("change", (event) => chose.add(event.target.id));
  at("pair").addEventListener("submit", (event) => {
    event.preventDefault();
    filled("difference", made("p", {className: "note"}, "comparing …"));
    dismiss("compare-refusal");
    compared().catch((error) => { filled("difference"); refuse("compare-refusal", error); });
  });
  at("door").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT, at("token").value.trim());
    at("token").value = "";
    offer().then(look).then(() => { if (watched) watch(watched); }).catch(trouble);
  });
  addEventListener("resize", drawn);
  offer().catch((error) => (error.status === 401 ? trouble(error) : refuse("submit-refusal", error)));
  looking();
  if (/^#[\w-]{1,100}$/.test(location.hash)) watch(location.hash.slice(1));
}

begin();
