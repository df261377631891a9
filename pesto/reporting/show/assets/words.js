// Numbers and names as people read them, and elements whose text is never markup.
"use strict";

const TIMES = [["s", 10, 1], ["ms", 1e-3, 1e-3], ["µs", 0, 1e-6]];
const SIZES = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 0]];
// Control characters, and those that turn the direction of what follows or cannot be seen.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function duration(seconds) {
  const [name, , one] = seconds ? TIMES.find(([, least]) => Math.abs(seconds) >= least) : TIMES[1];
  return `${(seconds / one).toFixed(2)} ${name}`;
}

function size(bytes) {
  const [name, one] = SIZES.find(([, least]) => bytes >= least);
  return one ? `${(bytes / one).toFixed(2)} ${name}` : `${bytes} ${name}`;
}

function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0 %";
  if (Math.abs(value) >= 0.1) return `${value.toFixed(1)} %`;
  return `${value.toPrecision(2)} %`;
}

const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const counted = (value, one, more = `${one}s`) => `${count(value)} ${value === 1 ? one : more}`;

// A name with what cannot be seen written as \u202e, so that it is read as it is.
function visible(name) {
  return String(name).replace(UNSEEN, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

// At most `most` characters, the middle left out: how a name begins and ends tells ops apart.
function brief(name, most) {
  const all = Array.from(name.length > 4 * most ? name.slice(0, 2 * most) + name.slice(-2 * most) : name);
  if (all.length <= most) return all.join("");
  const head = Math.max(1, (most - 1) >> 1), tail = most - 1 - head;
  return `${all.slice(0, head).join("")}…${tail > 0 ? all.slice(-tail).join("") : ""}`;
}

// At most `most` characters of its end, which tells scopes apart; whole scopes, where the last is not too long.
function briefEnd(name, most) {
  const all = Array.from(name);
  if (all.length <= most) return name;
  const end = all.slice(1 - most).join(""), slash = end.indexOf("/");
  return `…${slash < 0 || slash === end.length - 1 ? end : end.slice(slash)}`;
}

const at = (id) => document.getElementById(id);

// An element with properties and children; a child that is a string is text.
function made(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.includes("-") || key === "role" || key === "scope") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

function filled(id, ...children) {
  at(id).replaceChildren(...children);
}

// A swatch of a colour, also one that a style sheet does not know.
function swatch(colour, kind = "") {
  const found = made("i", {className: kind});
  found.style.background = colour;
  return found;
}

function meter(share) {
  const bar = made("i");
  bar.style.width = `${Math.min(100, 100 * share)}%`;
  return made("span", {className: "meter", "aria-hidden": "true"}, bar);
}

// A table: columns are [title, class], cells are strings or elements.
function table(columns, rows, marked = () => false) {
  const head = columns.map(([title, kind]) => made("th", {scope: "col", className: kind || ""}, title));
  const body = rows.map((cells, k) => made("tr", {className: marked(k) ? "chosen" : ""},
    ...cells.map((cell, c) => made("td", {className: columns[c][1] || ""}, cell))));
  return made("div", {className: "scroll", tabIndex: 0},
    made("table", null, made("thead", null, made("tr", null, ...head)), made("tbody", null, ...body)));
}
