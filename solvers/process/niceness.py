"""How far a process gives way to others where processors are shared out among sessions first."""

import os
import time
from pathlib import Path

_TRIES, _AGAIN_S = 3, 0.1
"""Linux lets users change one session in a tenth of a second: how often it is asked, and after how long again."""


def keep_niceness(pid: int) -> None:
    """Give the session of a process the niceness of this one.

    Linux shares processors out among sessions (autogroups), each with a niceness of its own that none inherits, and
    by that of processes within a session alone. Without autogroups, or where this is not allowed, nothing changes.
    """
    level, group = os.nice(0), Path(f"/proc/{pid}/autogroup")
    for _ in range(_TRIES if level > 0 else 0):
        try:
            group.write_text(str(level))
        except BlockingIOError:
            time.sleep(_AGAIN_S)
        except OSError:
            return
        else:
            return
