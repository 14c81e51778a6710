"""`python -m holdfast`: the command line, where its script is not on the path."""

import sys

from holdfast.cli import start

if __name__ == "__main__":
    sys.exit(start())
