"""`python -m tenure`, where the script `tenure` is not on PATH."""

import sys

from tenure.cli import main

sys.exit(main())
