"""`python -m tests.verify.traces`."""

import sys

from tests.verify.traces.command import main

if __name__ == "__main__":
    sys.exit(main())
