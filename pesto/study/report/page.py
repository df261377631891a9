"""The report as one HTML page: nothing is loaded from anywhere, and nothing in it can act but its own script."""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Mapping

from pesto.show.drawing import INK
from pesto.study.report.content import Report, Section
from pesto.study.report.figures import Figure
from pesto.study.report.pictures import PAPER
from pesto.study.report.table import Column, Table, Value, written
from pesto.study.report.text import CONFLICTS, DEFINITIONS, NO_PICTURES, QUERIES, queries

MOST_ROWS = 2000
"""Rows of one table; all are in the CSV."""
_STATES = re.compile(
    r"^(optimal|feasible|infeasible|unknown|crashed|hung|invalid|missing|refused|contradicted|pending)$|^0 % in "
)
_PROLOG = re.compile(r"^.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_OWN_NAMES = re.compile(r'(\bid="|url\(#|href="#)')
_SIZE = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --faint: #57606a; --rule: #d0d7de; --good: #dff3e4;
  --bad: #ffe2dc; --head: #f6f8fa; --link: #0969da }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0f1419; --faint: #9aa4af; --rule: #363d46;
  --good: #12351f; --bad: #4a1d16; --head: #1a2028; --link: #6cb6ff } }
body { font: 15px/1.5 system-ui, "Segoe UI", sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1440px; padding: 1.5rem }
h1, h2, h3 { line-height: 1.25; overflow-wrap: anywhere } h2 { margin-top: 2.4rem } li { overflow-wrap: anywhere }
.note, figcaption { color: var(--faint); max-width: 75ch }
.warn { border-left: 4px solid #d55e00; padding: .1rem 1rem; background: var(--bad) }
.scroll { overflow: auto; max-height: 80vh; border: 1px solid var(--rule); border-radius: 6px; margin: .8rem 0 }
table { border-collapse: separate; border-spacing: 0; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap }
tr:last-child td { border-bottom: 0 }
th { background: var(--head); position: sticky; top: 0; z-index: 1; vertical-align: bottom; white-space: normal;
  min-width: 4.5em }
th.text, td.text { text-align: left } th:first-child { z-index: 2; min-width: 11em }
th:first-child, td:first-child { position: sticky; left: 0 } td:first-child { background: var(--paper) }
th button { all: unset; cursor: pointer; overflow-wrap: break-word } th button:focus-visible { outline: 2px solid }
th[aria-sort] button::after { content: " \\25B2"; font-size: .7em }
th[aria-sort="descending"] button::after { content: " \\25BC" }
td.long { white-space: normal; min-width: 24em; overflow-wrap: anywhere }
td.good { background: var(--good) } td.bad { background: var(--bad) } td.idle { color: var(--faint) }
figure { margin: 1rem 0 } figure svg { max-width: 100%; height: auto }
pre { background: var(--head); padding: .8rem; overflow: auto; border-radius: 6px; font-size: 13px }
summary { cursor: pointer; margin: .5rem 0 }
@media print { .scroll { max-height: none; overflow: visible } }
"""
_SCRIPT = """
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
"""


def to_page(report: Report, drawn: Mapping[str, bytes], database: str) -> str:
    """The page; `drawn` has the SVG of each figure by its key, and lacks those that could not be drawn."""
    parts = [
        _head(report),
        "<ul>",
        *(f"<li>{_safe(fact)}</li>" for fact in report.facts),
        "</ul>",
        *_conflicts(report),
    ]
    if report.figures and not drawn:
        parts.append(f"<p>{_safe(NO_PICTURES)}</p>")
    for section in report.sections:
        parts += _section(section, drawn)
    parts += ["<h2>What the words mean</h2><ul>"]
    parts += [f"<li><b>{_safe(word)}</b>: {_safe(text)}</li>" for word, text in DEFINITIONS]
    asked = _safe("\n".join(queries(database)))
    parts += [f"</ul><h2>Ask the file itself</h2><p>{_safe(QUERIES)}</p><pre>{asked}</pre>"]
    return "\n".join([*parts, f"</main><script>{_SCRIPT}</script></body></html>", ""])


def _head(report: Report) -> str:
    # Only this very script and style may run, so a name that slipped through the escaping still could do nothing.
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src {_digest(_SCRIPT)}; base-uri 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(report.name)}</title><style>{_STYLE}</style></head><body><main>\n<h1>{_safe(report.name)}</h1>"
    )


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _conflicts(report: Report) -> Iterator[str]:
    if report.conflicts:
        claims = "".join(f"<li>{_safe(claim)}</li>" for claim in report.conflicts[:MOST_ROWS])
        yield f'<div class="warn"><h2>Contradictions</h2><p>{_safe(CONFLICTS)}</p><ul>{claims}</ul></div>'


def _section(section: Section, drawn: Mapping[str, bytes]) -> Iterator[str]:
    for table in section.tables:
        yield f"<h2>{_safe(table.title)}</h2>"
        yield from _table(table)
    if section.note:
        yield f'<p class="note">{_safe(section.note)}</p>'
    for table in section.more:
        yield f"<details><summary>{_safe(table.title)}</summary>"
        yield from _table(table)
        yield "</details>"
    for figure in section.figures:
        if figure.key in drawn:
            yield f"<h3>{_safe(figure.title)}</h3><figure>{inlined(figure, drawn[figure.key])}"
            yield f"<figcaption>{_safe(figure.caption)}</figcaption></figure>"


def inlined(figure: Figure, svg: bytes) -> str:
    """An SVG document as an element: without prolog and comments, its names its own, text in the page's colour."""
    text = _OWN_NAMES.sub(rf"\g<1>{figure.key}-", _PROLOG.sub("", svg.decode()))
    label = f'<svg role="img" aria-label="{_safe(figure.title)}" '
    found = _SIZE.search(text)
    if found:  # in place of the fixed size: as wide as the page allows
        label += f'width="{float(found[1]) * 4 / 3:.0f}" viewBox="0 0 {found[1]} {found[2]}" '
        text = text[: found.start()] + label + 'xmlns:xlink="http://www.w3.org/1999/xlink">' + text[found.end() :]
    return text.replace(f"fill: {PAPER}", "fill: none").replace(INK, "currentColor")


def _table(table: Table) -> Iterator[str]:
    yield '<div class="scroll" tabindex="0"><table><thead><tr>'
    for column in table.columns:
        yield f'<th scope="col"{_kind(column)}><button type="button">{_safe(column.title)}</button></th>'
    yield "</tr></thead><tbody>"
    for row in table.rows[:MOST_ROWS]:
        cells = "".join(_cell(value, column) for value, column in zip(row, table.columns, strict=True))
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"
    if len(table.rows) > MOST_ROWS:
        yield f'<p class="note">{len(table.rows) - MOST_ROWS} more rows are in {_safe(table.key)}.csv.</p>'
    if table.note:
        yield f'<p class="note">{_safe(table.note)}</p>'


def _kind(column: Column) -> str:
    return ' class="text"' if column.kind == "text" else ""


def _cell(value: Value, column: Column) -> str:
    text = written(value, column.kind)
    names = ["text"] if column.kind == "text" else []
    state = _STATES.match(text) if isinstance(value, str) else None
    if state:
        names.append({"optimal": "good", None: "good", "pending": "idle"}.get(state[1], "bad"))
        names = names[:-1] if state[1] in ("feasible", "infeasible", "unknown") else names
    names += ["long"] if len(text) > 60 else []
    shown_as = f' class="{" ".join(names)}"' if names else ""
    number = "" if value is None else repr(value) if isinstance(value, int | float) else None
    sort = "" if number is None else f' data-v="{_safe(number)}"'
    return f"<td{shown_as}{sort}>{_safe(text)}</td>"


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
