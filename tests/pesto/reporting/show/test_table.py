"""Tables as lines of a terminal, as Markdown and as text for people."""

import pytest

from pesto.reporting.show.lines import Column, Table, align_rows, escape_markdown, format_value, to_markdown


def test_columns_on_a_terminal_are_as_wide_as_their_widest_text() -> None:
    """Names to the left, numbers to the right, at least as wide as asked for, nothing behind the last text."""
    rows = [("name", "ms", ""), ("a", "1.5", "best"), ("longer", "10.25", "")]
    assert align_rows(rows, "<><") == ["name       ms", "a         1.5  best", "longer  10.25"]
    assert align_rows(rows, "<><", (8, 7)) == ["name           ms", "a             1.5  best", "longer      10.25"]
    assert align_rows([("a", "b", "c")] * 2, ">", (2, 2, 2)) == [" a   b   c"] * 2
    assert align_rows([], "<") == []


def test_a_brief_table_has_the_wanted_columns_that_say_something() -> None:
    columns = tuple(Column(key=key, title=key) for key in ("a", "none", "b.c", "d"))
    table = Table(key="t", title="", columns=columns, rows=((1, 0, 2, None), (0, None, 3, 4)))
    brief = table.brief(lambda c: "." not in c.key)
    assert ([c.key for c in brief.columns], brief.rows) == (["a", "d"], ((1, None), (0, 4)))


def test_escaped_text_is_one_line() -> None:
    assert escape_markdown("a|b\n<c>&`*_d_*") == r"a\|b\\n&lt;c&gt;&amp;\`\*\_d\_\*"
    assert escape_markdown("lstm_grid 4x20") == "lstm_grid 4x20"
    assert escape_markdown("see www.x.example") == "see www&#46;x.example"


def test_a_table_refuses_a_row_of_another_width() -> None:
    with pytest.raises(ValueError, match="2 values"):
        Table(key="t", title="", columns=(Column(key="a", title="a"),) * 2, rows=((1,),))


def test_long_tables_end_with_where_the_rest_is() -> None:
    table = Table(key="t", title="", columns=(Column(key="a", title="a"),), rows=((1,), (2,), (3,)))
    assert to_markdown(table, 2).splitlines()[-1] == "1 more rows are in t.csv."


def test_numbers_for_people() -> None:
    assert format_value(0.0004, "percent") == "0.04 %"
    assert format_value(0.123, "percent") == "12.3 %"
    assert format_value(1234567, "number") == "1,234,567"
    assert format_value(37.6, "number") == "37.60"
    assert format_value(None, "number") == "\u2013"
    assert (format_value(0.25, "seconds"), format_value(1234.5, "seconds")) == ("0.25", "1,234")
