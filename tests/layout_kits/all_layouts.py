"""All layouts of the kits by name."""

from __future__ import annotations

import layout_kit
from layout_kit_archives import ARCHIVES
from layout_kit_arrays import ARRAYS
from layout_kit_boxes import BOXED
from layout_kit_known import KNOWN
from layout_kit_more import MORE
from layout_kit_public import PUBLIC
from layout_kit_runs import RUNS
from layout_kit_steps import STEPS
from layout_kit_told import TOLD

KITS = (layout_kit.LAYOUTS, ARCHIVES, ARRAYS, BOXED, KNOWN, MORE, PUBLIC, RUNS, STEPS, TOLD)
LAYOUTS = {layout.name: layout for kit in KITS for layout in kit}
