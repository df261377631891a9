// Changes in place: what a user has focused or selected stays, and so do messages until they are dismissed.
const keyOf = (row) => row.querySelector("[data-job]")?.dataset.job;

// Give a node the attributes, text and children of another one, and keep every node that both have.
function renew(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const {name} of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const {name, value} of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.tagName === "TBODY") renewRows(old, [...fresh.children]);
  else renewChildren(old, [...fresh.childNodes]);
}

const alike = (a, b) => a && a.nodeType === b.nodeType && a.nodeName === b.nodeName;

function renewChildren(old, fresh) {
  fresh.forEach((node, k) => {
    const own = old.childNodes[k];
    if (alike(own, node)) renew(own, node);
    else if (own) own.replaceWith(node);
    else old.append(node);
  });
  while (old.childNodes.length > fresh.length) old.lastChild.remove();
}

// Rows are known by their job; their order never changes, so none that stays is moved, which would take its focus.
function renewRows(body, fresh) {
  const wanted = new Set(fresh.map(keyOf));
  for (const row of [...body.children]) if (!wanted.has(keyOf(row))) row.remove();
  let own = body.firstElementChild;
  for (const row of fresh) {
    if (own && keyOf(own) === keyOf(row)) {
      renew(own, row);
      own = own.nextElementSibling;
    } else body.insertBefore(row, own);
  }
}

// As `filled`, in place.
function renewed(id, ...children) {
  const fresh = made("div");
  fresh.append(...children);
  renewChildren(at(id), [...fresh.childNodes]);
}

// Hide a control or show it; the keyboard's place goes from a hidden one to `next`.
function hide(id, hidden, next) {
  const left = hidden && document.activeElement === at(id);
  at(id).hidden = hidden;
  if (left) at(next).focus();
}

// A refusal, beside what was refused until it is dismissed or superseded; a service that does not answer, above all.
function refuse(place, error) {
  if (error instanceof TypeError) { trouble(error); return; }
  const back = document.activeElement, away = made("button", {type: "button", className: "away"}, "Dismiss");
  away.addEventListener("click", () => { dismiss(place); back.focus(); });
  filled(place, made("span", null, visible(error.message)), " ", away);
  at(place).hidden = false;
  at(place).scrollIntoView({block: "nearest"});
}

function dismiss(place) {
  filled(place);
  at(place).hidden = true;
}
