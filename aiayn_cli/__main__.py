"""`python -m aiayn_cli` is the same as `aiayn`; torchrun starts it this way."""

import sys

from aiayn_cli.app import main

sys.exit(main())
