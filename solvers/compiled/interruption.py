"""Recognition of an interruption (Ctrl-C) that arrived within compiled code."""


def struck(error: BaseException | None) -> bool:
    """Return True if an error stands for an interruption, in whose place numba and numpy raise errors of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
