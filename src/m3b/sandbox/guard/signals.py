"""The module `signal` without its enumerations, whose import takes as long as starting the interpreter."""

from __future__ import annotations

TYPE_CHECKING = False  # what the module typing says; importing it takes longer than all else here
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["signal"]
