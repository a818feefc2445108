"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# how long one example takes says something of the machine's load, and speed is measured in benchmarks/
settings.register_profile("m3b", deadline=None)
settings.load_profile("m3b")
