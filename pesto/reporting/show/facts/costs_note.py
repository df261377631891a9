"""Notes on costs: the source of op times in a result, and their omissions."""


def costs_text(basis: str, source: str, note: str) -> str:
    """Where op times come from, and what they leave out, for a page."""
    return f"{basis}: {source}{f'; {note}' if note else ''}"


def note_key(note: str) -> dict[str, str]:
    """The key `costs_note` of a JSON object; none where there is nothing to say."""
    return {"costs_note": note} if note else {}
