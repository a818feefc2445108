"""Where a reading and what it made lie, below the working directory."""

from __future__ import annotations

SPEC = "Datapath/index_spec.json"
"""The reading that is handed over: m3b executes it."""
OFFERS = "Datapath/readings"
"""Proposed readings, numbered."""
PROMPTED = "Datapath/prompted"
"""Masks that were prompted for in the run, of images without one, and `masks.json`, which names them."""
ACCOUNTING = "Datapath/accounting.json"
"""What an executed reading used and left out."""
