"""OpenAI, and every server that speaks its chat-completions protocol."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from m3b.errors import BadRequest
from m3b.messages import Message, Reply, ToolSpec

from . import facts as known
from . import keys, tokens, wire_openai
from .base import Cancelled, Facts, OnWait
from .conversation import check
from .retry import Retry
from .trouble import translate

CONNECT_S = 15.0


class OpenAI:
    """One model behind the chat-completions protocol.

    Args:
        model: its name at the provider.
        base_url: the server; None for OpenAI's own (or what `OPENAI_BASE_URL` says, which goes with `OPENAI_API_KEY`).
        key: the key; looked for in the environment where not given.
        provider: the name in front of the colon.
        facts: window, prices and so on; looked up where not given.
        retry: how patient to be.
        timeout_s: seconds without a byte after which a request counts as lost.

    Raises:
        Authentication: no key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: keys.Key | None = None,
        provider: str = "openai",
        facts: Facts | None = None,
        retry: Retry | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        self.name = f"{provider}:{model}"
        self.facts = facts or known.lookup(provider, model, priced=provider != "openai" or base_url is None)
        self._model = model
        self._base_url = base_url
        self._key = key or keys.find(("OPENAI_API_KEY",), base_url, provider)
        self._retry = retry or Retry()
        self._timeout_s = timeout_s
        self._client: Any = None
        self._lock = threading.Lock()
        self._extras: wire_openai.Extras = {}
        # Other servers often know only the older name; see `_adapt` for what a refusal changes.
        self._options: dict[str, Any] = {}
        self._limit_name = "max_completion_tokens" if base_url is None else "max_tokens"

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_wait: OnWait | None = None,
        cancelled: Cancelled | None = None,
    ) -> Reply:
        """See `LLM.ask`."""
        check(messages)
        return self._retry.run(partial(self._adapted, messages, tools), on_wait, cancelled)

    def _adapted(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        """One request; a refusal that names a parameter changes that parameter, once each."""
        for _ in range(2):
            try:
                return self._request(messages, tools)
            except BadRequest as refusal:
                if not self._adapt(str(refusal)):
                    raise
        return self._request(messages, tools)

    def _adapt(self, refusal: str) -> bool:
        """Whether the refusal named something that can be said otherwise; from then on it is."""
        if self._limit_name == "max_tokens" and "max_completion_tokens" in refusal:
            self._limit_name = "max_completion_tokens"
            return True
        if self._limit_name != "max_tokens" and re.search(
            r"(unknown|unsupported|unrecognized).*max_completion", refusal, re.I
        ):
            self._limit_name = "max_tokens"
            return True
        if re.search(r"tools.*reasoning_effort|reasoning_effort.*tools", refusal) and not self._options:
            # Some models take tools on this protocol only without reasoning, and reason unless told not to.
            self._options = {"reasoning_effort": "none"}
            return True
        return False

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": wire_openai.to_messages(messages, self._extras),
            self._limit_name: self.facts.max_output,
            **self._options,
        }
        if tools:
            request["tools"] = wire_openai.to_tools(tools)
        body = self._send(lambda: self._open().chat.completions.create(**request))
        sent = tokens.of_request(messages, tools)
        taken = frozenset(call.id for message in messages for call in message.calls)
        reply, extras = wire_openai.to_reply(body, self.name, self.facts, sent, taken)
        self._extras.update(extras)
        return reply

    def _send(self, send: Callable[[], Any]) -> Any:
        """The decoded response. Errors are raised outside the handler, so that none drags the SDK's along: its request
        holds the key."""
        try:
            answer = send()
            return answer.model_dump(mode="python", warnings=False) if hasattr(answer, "model_dump") else answer
        except Exception as error:  # noqa: BLE001 - the provider's boundary: whatever it is not, is raised unchanged
            failure: Exception = translate(error, self.name, self._key.source, (self._key.value,)) or error
        raise failure

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                import openai

                timeout = openai.Timeout(self._timeout_s, connect=CONNECT_S)
                local = self._base_url is not None and keys.is_loopback(self._base_url)
                # A proxy of the environment must not be asked for this very machine.
                http = openai.DefaultHttpxClient(trust_env=False, timeout=timeout) if local else None
                self._client = openai.OpenAI(
                    api_key=self._key.value, base_url=self._base_url, max_retries=0, timeout=timeout, http_client=http
                )
            return self._client
