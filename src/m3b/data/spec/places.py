"""Where a reading and what it made lie, below the working directory."""

from __future__ import annotations

SPEC = "Datapath/manifest.json"
"""The reading that is handed over: m3b executes it."""
EARLIER_SPEC = "Datapath/index_spec.json"
"""The same in runs that were begun by an earlier version, whose agents were told this name."""
OFFERS = "Datapath/proposals"
"""Proposed readings, numbered."""
PROMPTED = "Datapath/prompted"
"""Masks that were prompted for in the run, of images without one, and `masks.json`, which names them."""
ACCOUNTING = "Datapath/accounting.json"
"""What an executed reading used and left out."""
