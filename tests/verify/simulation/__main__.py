"""`python -m tests.verify.simulation`."""

import sys

from tests.verify.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
