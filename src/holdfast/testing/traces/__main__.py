"""`python -m holdfast.testing.traces`."""

import sys

from holdfast.testing.traces.command import main

if __name__ == "__main__":
    sys.exit(main())
