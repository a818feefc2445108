"""The module `signal` without its enumerations, whose import takes as long as the start of the interpreter."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["signal"]
