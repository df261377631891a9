"""How many files a server may have open, connections among them."""

import resource

MOST_FILES = 1 << 16
"""Above which the limit is not raised."""


def raised_file_limit() -> int:
    """Raise the limit of open files as far as this process may; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # a system may refuse what it has said that it allows
        return soft
    return wanted
