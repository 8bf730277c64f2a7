"""``python -m transformer_lib``: the command ``transformer-lib``."""

import sys

from .translation.cli import main

sys.exit(main())
