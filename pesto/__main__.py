"""python -m pesto."""

from pesto.cli.main import main

if __name__ == "__main__":
    main()
