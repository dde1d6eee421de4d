"""`python -m mtkit` is `mtkit`."""

from mtkit.cli import main

if __name__ == "__main__":
    main()
