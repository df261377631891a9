"""Places of tables in the pages: what stands between `<!-- table: NAME -->` and `<!-- end -->`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pesto.core.files.disk import write_atomic

MARK = re.compile(r"(<!-- table: ([a-z0-9-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def written(blocks: Mapping[str, Sequence[str]], pages: Iterable[Path]) -> set[str]:
    """Put each block in its place in the pages; returns the names that have one. Other text stays as it is."""
    placed: set[str] = set()
    for page in pages:
        before = page.read_text(encoding="utf-8")

        def filled(match: re.Match[str]) -> str:
            name = match[2]
            if name not in blocks:
                return match[0]
            placed.add(name)
            lines = "\n".join(blocks[name]).strip()
            return f"{match[1]}\n{lines}\n\n{match[4]}"

        after = MARK.sub(filled, before)
        if after != before:
            write_atomic(page, after.encode())
    return placed
