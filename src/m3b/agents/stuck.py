"""Noticing an agent that goes round in circles."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field

from m3b.messages import ToolCall

MAX_SAME_RESULTS = 4
"""Strong models correct themselves after three repeats; a fourth is a circle."""
MAX_MALFORMED_CALLS = 3

_VARYING_PATTERN = re.compile(r"(?<=\bafter )\d+(\.\d+)? s\b|(?<=Logout/)\w+/\d+(?=\.\w)|(?<=\bjob=)\d+|(?<=\bJob )\d+")
"""What differs each time though nothing else does: how long a script ran, its number, the name of its log."""


@dataclass
class RepetitionDetector:
    """Counts repeats within one role."""

    counts: Counter[str] = field(default_factory=Counter)
    malformed_calls: int = 0
    has_warned: bool = False

    def observe(self, call: ToolCall, result: str, is_malformed: bool) -> str:
        """Take in one call and its result.

        Returns:
            What repeats, as a sentence, when it has repeated too often; otherwise the empty string.
        """
        self.malformed_calls = self.malformed_calls + 1 if is_malformed else 0
        if self.malformed_calls >= MAX_MALFORMED_CALLS:
            self.malformed_calls = 0
            return f"{MAX_MALFORMED_CALLS} calls running could not be understood; the last was to `{call.name}`."
        key = _fingerprint_call(call, result)
        self.counts[key] += 1
        if self.counts[key] >= MAX_SAME_RESULTS:
            self.counts[key] = 0
            arguments = json.dumps(call.arguments, ensure_ascii=False)[:200]
            return f"`{call.name}` was called {MAX_SAME_RESULTS} times with {arguments}, and each time the result was the same."
        return ""


def _fingerprint_call(call: ToolCall, result: str) -> str:
    text = json.dumps([call.name, call.arguments, _VARYING_PATTERN.sub("#", result)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
