// Hands on the page, and the first look.
function begin() {
  formed();
  const on = (id, act) => at(id).addEventListener("click", () => Promise.resolve(act()).catch(trouble));
  on("cancel", () => asked(`jobs/${watched}`, {method: "DELETE"}).then(() => shown(watched)));
  on("plan", () => save(`jobs/${watched}/files/${wrote}`, wrote));
  on("report", reported);
  on("more", () => { pages += 1; return look(); });
  at("state").addEventListener("change", () => { pages = 1; look().catch(trouble); });
  at("queue").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-job]");
    if (button) watch(button.dataset.job);
  });
  at("pair").addEventListener("change", (event) => chose.add(event.target.id));
  at("pair").addEventListener("submit", (event) => {
    event.preventDefault();
    filled("difference", made("p", {className: "note"}, "comparing …"));
    compared().catch((error) => { filled("difference"); trouble(error); });
  });
  at("door").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT, at("token").value.trim());
    at("token").value = "";
    offer().then(look).catch(trouble);
  });
  addEventListener("resize", drawn);
  offer().catch(trouble);
  looking();
  if (/^#[\w-]{1,100}$/.test(location.hash)) watch(location.hash.slice(1));
}

begin();
