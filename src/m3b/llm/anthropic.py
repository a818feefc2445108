"""Anthropic, through its messages protocol."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType

from m3b.errors import BadRequest
from m3b.messages import Message, Reply, ToolSpec

from . import keys, model_catalog, stream_anthropic, tokens, wire_anthropic
from .base import IsCancelled, ModelFacts, OnText, OnWait
from .client import SdkClient
from .conversation import validate_conversation
from .retry import Retry
from .streaming import TextStream


def _import_sdk() -> ModuleType:
    import anthropic

    return anthropic


class Anthropic:
    """One model behind the messages protocol.

    Blocks of thought that came with calls are kept in memory and sent back as they came, as long as nothing before them
    was edited; after an edit or a resume the conversation goes without them.

    Args:
        model: its name at the provider.
        base_url: the server; None for Anthropic's own (or what `ANTHROPIC_BASE_URL` says).
        key: the key; looked for in the environment where not given.
        provider: the name in front of the colon.
        facts: window, prices and so on; looked up where not given.
        retry: how patient to be.
        timeout_s: seconds without a byte after which a request counts as lost.
        spec: what `connect` makes the same model again from; its name where not given.

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
        provider: str = "anthropic",
        facts: ModelFacts | None = None,
        retry: Retry | None = None,
        timeout_s: float = 600.0,
        spec: str = "",
    ) -> None:
        self.name = f"{provider}:{model}"
        self.spec = spec or self.name
        self.facts = facts or model_catalog.look_up(provider, model, priced=base_url is None)
        self._model = model
        self._retry = retry or Retry()
        self._sdk = SdkClient(
            _import_sdk,
            "Anthropic",
            name=self.name,
            key=key or keys.find_key(("ANTHROPIC_API_KEY",), base_url, provider),
            base_url=base_url,
            timeout_s=timeout_s,
            dump_options={"mode": "json", "exclude_unset": True, "warnings": False},
        )
        self._thoughts: dict[str, list[wire_anthropic.Block]] = {}

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
        reply = self._retry.run(
            partial(self._request_without_refused_thoughts, messages, tools, relay), on_wait, relay.poll
        )
        relay.drain()
        return reply

    def _request_without_refused_thoughts(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], relay: TextStream
    ) -> Reply:
        """One request; when the provider refuses its own thoughts back, they are forgotten and it is made again."""
        try:
            return self._request(messages, tools, relay)
        except BadRequest as refusal:
            if not self._thoughts or "thinking" not in str(refusal):
                raise
        self._thoughts.clear()
        return self._request(messages, tools, relay)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], relay: TextStream) -> Reply:
        request = wire_anthropic.to_request(messages, tools, self._thoughts.get, self.facts.vision)
        request |= {"model": self._model, "max_tokens": self.facts.max_output}
        body = self._sdk.send(lambda client: client.messages.create, request, relay, stream_anthropic.assemble_message)
        reply, blocks = wire_anthropic.to_reply(
            body, self.name, self.facts, tokens.estimate_request_tokens(messages, tools)
        )
        if blocks:
            self._thoughts[wire_anthropic.fingerprints([*messages, reply.to_message()], tools)[-1]] = blocks
        return reply
