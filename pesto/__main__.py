"""python -m pesto."""

from pesto.cli import main

if __name__ == "__main__":
    main()
