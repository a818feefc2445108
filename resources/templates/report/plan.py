"""Writes plan.json; see `m3b.training.report.plan`."""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from m3b.training.report.plan import main

if __name__ == "__main__":
    sys.exit(main())
