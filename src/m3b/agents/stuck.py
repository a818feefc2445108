"""Noticing an agent that goes round in circles."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field

from m3b.messages import ToolCall

SAME_LIMIT = 4
"""Strong models correct themselves after three repeats; a fourth is a circle."""
MALFORMED_LIMIT = 3

_VARYING_PATTERN = re.compile(r"(?<=\bafter )\d+(\.\d+)? s\b|(?<=Logout/)\w+/\d+(?=\.\w)|(?<=\bjob=)\d+|(?<=\bJob )\d+")
"""What differs each time though nothing else does: how long a script ran, its number, the name of its log."""


@dataclass
class StuckDetector:
    """Counts repeats within one role."""

    seen: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    warned: bool = False

    def note(self, call: ToolCall, result: str, is_malformed: bool) -> str:
        """Take in one call and its result.

        Returns:
            What repeats, as a sentence, when it has repeated too often; otherwise the empty string.
        """
        self.malformed = self.malformed + 1 if is_malformed else 0
        if self.malformed >= MALFORMED_LIMIT:
            self.malformed = 0
            return f"{MALFORMED_LIMIT} calls running could not be understood; the last was to `{call.name}`."
        key = _key(call, result)
        self.seen[key] += 1
        if self.seen[key] >= SAME_LIMIT:
            self.seen[key] = 0
            arguments = json.dumps(call.arguments, ensure_ascii=False)[:200]
            return (
                f"`{call.name}` was called {SAME_LIMIT} times with {arguments}, and each time the result was the same."
            )
        return ""


def _key(call: ToolCall, result: str) -> str:
    text = json.dumps([call.name, call.arguments, _VARYING_PATTERN.sub("#", result)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
