"""`python -m tests.verify.torture`."""

import sys

from tests.verify.torture.command import main

if __name__ == "__main__":
    sys.exit(main())
