"""The language model of an outside system: an address inside the sandbox, answered by m3b outside of it.

The sandbox has no network and no keys. Inside, `inside.py` listens on the loopback with the wire of OpenAI's chat
completions and hands each request over as a file; here it is answered with m3b's own client, counted, and refused once the
budget is spent. Every system is so measured by one meter.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import Authentication, BadRequest, ContextOverflow, LLMError
from m3b.llm.base import LLM
from m3b.messages import Usage
from m3b.writing import write_text_atomically

from .wire import read_messages, read_tools, to_completion

POLL_S = 0.02

LOOPBACK_PROGRAM = Path(__file__).with_name("inside.py")
"""The program that runs inside the sandbox."""

MODEL_ROUTE = "openai/"
"""What programs that choose a wire by the model's name want before it."""


NO_RETRY_STATUS = 401
"""The status after which no program asks again; others, 403 too, are tried again for minutes by some."""


@dataclass
class UsageMeter:
    """What was asked so far, and how much may be."""

    max_requests: int = 100
    max_tokens: int | None = None
    max_cost: float | None = None
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    refusal: str = ""
    failure: str = ""
    failed_in_a_row: int = 0
    """Requests in a row that got no answer."""

    def explain_limit(self) -> str:
        """Why no further request is answered; empty while one may be."""
        if self.requests >= self.max_requests:
            return f"all {self.max_requests} requests are used"
        if self.max_tokens is not None and self.usage.total_tokens >= self.max_tokens:
            return f"all {self.max_tokens} tokens are used"
        if self.max_cost is not None and self.usage.cost_usd >= self.max_cost:
            return f"the {self.max_cost} US dollars are used"
        return ""


class Relay:
    """Answers the requests that appear in a folder, in a thread of its own."""

    def __init__(self, folder: Path, llm: LLM, meter: UsageMeter) -> None:
        self.folder, self.llm, self.meter = folder, llm, meter
        folder.mkdir(parents=True, exist_ok=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve_requests, name="m3b-relay", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _serve_requests(self) -> None:
        while not self._stop.is_set():
            request_files = sorted(self.folder.glob("ask-*.json"))
            for file in request_files:
                if not file.is_symlink():
                    self._serve_file(file)
                file.unlink(missing_ok=True)
            if not request_files:
                time.sleep(POLL_S)

    def _serve_file(self, file: Path) -> None:
        status, body = self._answer_request(file)
        write_text_atomically(
            file.with_name(file.name.replace("ask-", "told-")), json.dumps({"status": status, "body": body})
        )

    def _answer_request(self, file: Path) -> tuple[int, dict[str, Any]]:
        limit = self.meter.explain_limit()
        if limit:
            self.meter.refusal = limit
            self.meter.failed_in_a_row += 1
            return NO_RETRY_STATUS, _make_error(f"The budget of this run is spent: {limit}.")
        try:
            request = json.loads(file.read_text(encoding="utf-8"))
            messages, tools = read_messages(request), read_tools(request)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return 400, _make_error(f"This is no chat completion request: {error}.")
        self.meter.requests += 1
        try:
            reply = self.llm.ask(messages, tools)
        except LLMError as error:
            return self._record_failure(error)
        self.meter.failure, self.meter.failed_in_a_row = "", 0
        self.meter.usage = self.meter.usage + reply.usage
        return 200, to_completion(reply, request, self.meter.requests)

    def _record_failure(self, error: LLMError) -> tuple[int, dict[str, Any]]:
        """The status that tells a program whether asking again makes sense."""
        self.meter.failed_in_a_row += 1
        if isinstance(error, ContextOverflow):  # the program's own doing: its conversation is too long
            return 400, _make_error(str(error), "context_length_exceeded")
        if not isinstance(error, BadRequest) or not self.meter.usage.output_tokens:
            self.meter.failure = str(error)
        if isinstance(error, BadRequest):
            return 400, _make_error(str(error))
        return NO_RETRY_STATUS if isinstance(error, Authentication) else 502, _make_error(str(error))


def _make_error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "m3b_relay", "code": code}}
