"""Writes the deliverable; see `m3b.training.report.export`."""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from m3b.training.report.export import main

if __name__ == "__main__":
    sys.exit(main())
