"use strict";
const value = (row, k) => row.cells[k].dataset.v ?? row.cells[k].textContent;
const order = (a, b) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  const x = parseFloat(a), y = parseFloat(b);
  if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
  return x - y || a.localeCompare(b, "en", {numeric: true});
};
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentElement, body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const k = head.cellIndex, rows = [...body.rows];
  const last = row => value(row, k) === "";
  rows.sort((a, b) => last(a) || last(b) ? last(a) - last(b) : (down ? -1 : 1) * order(value(a, k), value(b, k)));
  body.append(...rows);
});
