"""`python -m tests.verify.mutants`."""

import sys

from tests.verify.mutants.command import main

if __name__ == "__main__":
    sys.exit(main())
