"""`python -m holdfast.testing.torture`."""

import sys

from holdfast.testing.torture.command import main

if __name__ == "__main__":
    sys.exit(main())
