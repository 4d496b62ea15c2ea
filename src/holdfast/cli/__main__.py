"""`python -m holdfast.cli`, where the script `holdfast` is not on PATH."""

import sys

from holdfast.cli import main

sys.exit(main())
