"""All layouts of the kits by name."""

from __future__ import annotations

import layout_kit
from layout_kit_archives import ARCHIVES
from layout_kit_arrays import ARRAYS
from layout_kit_boxes import BOXED
from layout_kit_known import STANDARD_LAYOUTS
from layout_kit_more import FURTHER_LAYOUTS
from layout_kit_public import PUBLIC
from layout_kit_runs import RUNS
from layout_kit_steps import STEPS
from layout_kit_told import LABEL_LAYOUTS

KITS = (
    layout_kit.LAYOUTS,
    ARCHIVES,
    ARRAYS,
    BOXED,
    STANDARD_LAYOUTS,
    FURTHER_LAYOUTS,
    PUBLIC,
    RUNS,
    STEPS,
    LABEL_LAYOUTS,
)
LAYOUTS = {layout.name: layout for kit in KITS for layout in kit}
