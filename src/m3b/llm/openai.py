"""OpenAI, and every server that speaks its chat-completions protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from m3b.errors import BadRequest
from m3b.messages import Message, Reply, ToolSpec

from . import keys, model_catalog, stream_openai, tokens, wire_openai
from .base import IsCancelled, ModelFacts, OnText, OnWait
from .client import SdkClient
from .conversation import validate_conversation
from .retry import Retry
from .streaming import TextStream

_RESPONSES_ONLY = re.compile(r"(?:only|must|use)\b[^.]{0,60}v1/responses\b[^.]{0,20}(?:not|instead)", re.IGNORECASE)
"""How OpenAI says that it serves a model on its responses protocol alone."""


def _import_sdk() -> ModuleType:
    import openai

    return openai


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
        spec: what `connect` makes the same model again from; its name where not given.
        limit: the name of the field that limits a reply; `max_tokens` on other servers than OpenAI's if not given.
        extra: fields that every request carries besides the protocol's own.

    Raises:
        Authentication: no key.
    """

    streams = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: keys.Key | None = None,
        provider: str = "openai",
        facts: ModelFacts | None = None,
        retry: Retry | None = None,
        timeout_s: float = 600.0,
        spec: str = "",
        limit: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = f"{provider}:{model}"
        self.spec = spec or self.name
        self.facts = facts or model_catalog.look_up(provider, model, priced=provider != "openai" or base_url is None)
        self._model = model
        self._base_url = base_url
        self._retry = retry or Retry()
        self._sdk = SdkClient(
            _import_sdk,
            "OpenAI",
            name=self.name,
            key=key or keys.find_key(("OPENAI_API_KEY",), base_url, provider),
            base_url=base_url,
            timeout_s=timeout_s,
            dump_options={"mode": "python", "warnings": False},
        )
        self._stream_options: dict[str, Any] = {"stream_options": {"include_usage": True}}
        self._extras: wire_openai.Extras = {}
        # Other servers often know only the older name; see `_adapt` for what a refusal changes.
        self._options: dict[str, Any] = {"extra_body": dict(extra)} if extra else {}
        self._limit_name = limit or ("max_completion_tokens" if base_url is None else "max_tokens")
        self._thoughts: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        self._uses_responses = self.facts.wire == "responses"

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_wait: OnWait | None = None,
        cancelled: IsCancelled | None = None,
        on_text: OnText | None = None,
    ) -> Reply:
        """See `LLM.ask`; the request is for a stream where `on_text` is given, and the reply is the same."""
        validate_conversation(messages)
        relay = TextStream(on_text, cancelled)
        reply = self._retry.run(partial(self._request_with_adaptation, messages, tools, relay), on_wait, relay.poll)
        relay.drain()
        return reply

    def _request_with_adaptation(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], relay: TextStream
    ) -> Reply:
        """One request; a refusal that names a parameter changes that parameter, once each."""
        for _ in range(4):
            try:
                return self._request(messages, tools, relay)
            except BadRequest as refusal:
                if not self._adapt(str(refusal)):
                    raise
        return self._request(messages, tools, relay)

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
        refuses_reasoning = re.search(r"tools.*reasoning_effort|reasoning_effort.*tools", refusal)
        needs_responses = _RESPONSES_ONLY.search(refusal) or (refuses_reasoning and self._base_url is None)
        if needs_responses and not self._uses_responses:
            self._uses_responses = True
            return True
        if refuses_reasoning and "reasoning_effort" not in self._options:
            # Some models take tools on this protocol only without reasoning, and reason unless told not to.
            self._options["reasoning_effort"] = "none"
            return True
        if "enable_thinking" in refusal and "enable_thinking" not in self._get_extra_body():
            self._options["extra_body"] = {**self._get_extra_body(), "enable_thinking": False}
            return True
        if "stream" in refusal and self._sdk.streams:
            # First without the wish for the usage, which older servers do not know; then without a stream.
            self._sdk.streams, self._stream_options = bool(self._stream_options), {}
            return True
        return False

    def _get_extra_body(self) -> dict[str, Any]:
        return dict(self._options.get("extra_body", {}))

    def _request_by_responses(self, messages: Sequence[Message], tools: Sequence[ToolSpec], relay: TextStream) -> Reply:
        """One request by the responses protocol."""
        from . import wire_responses

        request = wire_responses.to_request(messages, tools, self.facts.max_output, self._thoughts, self.facts.vision)
        request["model"] = self._model
        body = self._sdk.send(lambda client: client.responses.create, request, relay, stream_openai.assemble_response)
        request_tokens = tokens.estimate_request_tokens(messages, tools)
        used_ids = frozenset(call.id for message in messages for call in message.calls)
        reply, thoughts = wire_responses.to_reply(body, self.name, self.facts, request_tokens, used_ids)
        self._thoughts.update(thoughts)
        return reply

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], relay: TextStream) -> Reply:
        if self._uses_responses:
            return self._request_by_responses(messages, tools, relay)
        request: dict[str, Any] = {
            "model": self._model,
            "messages": wire_openai.to_messages(messages, self._extras, self.facts.vision),
            self._limit_name: self.facts.max_output,
            **self._options,
        }
        if tools:
            request["tools"] = wire_openai.to_tools(tools)
        body = self._sdk.send(
            lambda client: client.chat.completions.create,
            request,
            relay,
            stream_openai.assemble_completion,
            self._stream_options,
        )
        request_tokens = tokens.estimate_request_tokens(messages, tools)
        used_ids = frozenset(call.id for message in messages for call in message.calls)
        reply, extras = wire_openai.to_reply(body, self.name, self.facts, request_tokens, used_ids)
        self._extras.update(extras)
        return reply
