"""The report as Markdown, and the words that it shares with the page."""

import shlex
from collections.abc import Iterator

from pesto.core.distribution import install_command
from pesto.reporting.show.table import Table, escape_markdown, to_markdown
from pesto.research.study.report.content import Report, Section

MOST_ROWS = 200
"""Rows of one table in the text; all are in the CSV."""
INSTALL = install_command("study")
NO_PICTURES = f"No pictures: matplotlib is not installed. To get them: {INSTALL} and write the report again."
DEFINITIONS = (
    ("makespan, lower bound", "in ticks, as the solvers count; a bound holds whatever the status."),
    ("gap", "(makespan - lower bound) / makespan; 100 % without a schedule."),
    (
        "best bound, best makespan",
        "the largest bound and the least makespan that any configuration has for the instance (a start counts too, a "
        "contradicted bound does not).",
    ),
    (
        "gap closed",
        "(gap of the start - gap at the end) / gap of the start; against the best bound, or by the own bound: from the "
        "bound that was known before the solver began to its own. Without a schedule at the end nothing is closed.",
    ),
    ("shifted geometric mean", "exp(mean(ln(s + 1))) - 1 seconds (Achterberg 2007)."),
    (
        "primal integral",
        "the integral of the primal gap, (makespan - best makespan) / makespan, from 0 s to the limit, in seconds "
        "(Berthold 2013); 100 % before the first schedule, so a run without one has its whole limit.",
    ),
    (
        "performance profile",
        "the share of problems on which a configuration is within a factor of the best one (Dolan and Moré 2002). Read "
        "off who is best at factor 1 and who is surest to the right; ranks further down depend on the field.",
    ),
    ("problem", "an instance with one seed."),
    (
        "failed",
        "crashed, hung, invalid (an answer that the checker refused), missing (solver not installed) or refused "
        "(instance not built). Failures count as 100 % gap and with at least the limit as their seconds, and are never "
        "left out of a mean, unless no cell of the configuration has run; but refused cells are only counted.",
    ),
    ("refused", "no solver was given a problem, so the cell enters no gap, integral, time or picture."),
    (
        "contradicted",
        "a bound above a known schedule, or a proof that none exists where there is one. It counts neither as a bound "
        "nor as a proof: what was known before the solver began takes its place.",
    ),
)


def to_text(report: Report, *, pictures: bool, database: str) -> str:
    """report.md; `pictures` says whether there are PNG files beside it."""
    lines = [f"# {escape_markdown(report.name)}", "", *(f"- {escape_markdown(fact)}" for fact in report.facts)]
    if report.conflicts:
        lines += [
            "",
            "## Contradictions",
            "",
            CONFLICTS,
            "",
            *(f"- {escape_markdown(c)}" for c in report.conflicts[:MOST_ROWS]),
        ]
    if not pictures and report.figures:
        lines += ["", NO_PICTURES]
    for section in report.sections:
        lines += _section(section, pictures=pictures)
    lines += [
        "",
        "## What the words mean",
        "",
        *(f"- **{word}**: {escape_markdown(text)}" for word, text in DEFINITIONS),
    ]
    lines += ["", "## Ask the file itself", "", QUERIES, "", "```sh", *queries(database), "```", ""]
    return "\n".join(lines)


CONFLICTS = (
    "These claims cannot all be true, so a solver, or the identity of an instance, is wrong. They are left "
    "out of the bounds and proofs in all that follows, and their cells count as contradicted."
)
QUERIES = (
    "The file of the study is an SQLite database: the table cells has every cell of the grid, the view rows those with "
    "a result, traces every step of progress. Times are ticks where they are whole numbers; cells of ordinal below 0 "
    "belong to an earlier form of the study. The tables above are beside this report as CSV."
)


def queries(database: str) -> list[str]:
    """Commands that query the study: its file by sqlite3 and by DuckDB, and by the latter a CSV of the report."""
    counted = "SELECT solver, formulation, status, count(*), avg(seconds) FROM {} GROUP BY solver, formulation, status"
    attached = f"ATTACH {_quoted(database)} AS s (TYPE sqlite); {counted.format('s.rows WHERE ordinal >= 0')}"
    return [
        f"sqlite3 -box {shlex.quote(database)} {_word(counted.format('rows WHERE ordinal >= 0'))}",
        f"duckdb -c {_word(attached)}  # with DuckDB's extension sqlite",
        f"duckdb -c {_word(counted.format(_quoted('cells_schedule.csv')))}  # in the folder of this report",
    ]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _word(text: str) -> str:
    """One word of a shell: SQL stays readable between double quotes, where nothing in it means more there."""
    return shlex.quote(text) if set('"$`\\!') & set(text) else f'"{text}"'


def _section(section: Section, *, pictures: bool) -> Iterator[str]:
    for k, table in enumerate(section.tables):
        yield from ("", f"## {escape_markdown(table.title)}", "", *_table(table))
        if k == 0 and section.note:
            yield from ("", escape_markdown(section.note))
    for figure in section.figures if pictures else ():
        yield from (
            "",
            f"### {escape_markdown(figure.title)}",
            "",
            f"![{escape_markdown(figure.title)}]({figure.key}.png)",
            "",
        )
        yield escape_markdown(figure.caption)


def _table(table: Table) -> Iterator[str]:
    yield to_markdown(table, MOST_ROWS)
    if table.note:
        yield from ("", escape_markdown(table.note))
