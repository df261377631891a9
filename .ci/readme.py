"""Print the README's command with the given number (0 sets up and runs the main job, 1 sets up and runs the tests)."""

import re
import sys
from pathlib import Path


def main() -> None:
    """The n-th fenced sh block of the README."""
    text = (Path(__file__).resolve().parent.parent / "README.md").read_text()
    print(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)[int(sys.argv[1])])


if __name__ == "__main__":
    main()
