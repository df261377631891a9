"""What an interruption becomes that comes within compiled code."""


def struck(error: BaseException | None) -> bool:
    """Whether an error stands for an interruption, in whose place numba and numpy raise errors of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
