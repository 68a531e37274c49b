"""`python -m inset` is the command line."""

import sys

from inset.cli import main

if __name__ == "__main__":
    sys.exit(main())
