"""A model behind a provider's SDK: opening the SDK's client, sending, streaming, retries and refused parameters."""

from __future__ import annotations

import threading
from typing import Any

from m3b.errors import BadRequest
from m3b.messages import Reply

from . import ledger
from .base import LLMRequest, ModelFacts
from .conversation import validate_conversation
from .error_mapping import map_error
from .keys import Key, is_loopback, strip_credentials
from .retry import Retry
from .streaming import NotStreamed, TextStream, cut_secret
from .wire import Wire

CONNECT_S = 6.0  # not 5: with their own defaults, 600 s and 5 s, an SDK refuses long replies that are not streamed
MAX_ADAPTATIONS = 4
"""How often one request is made again because the provider refused a parameter of it."""


IMAGES_ADVICE = "The request holds images: if this model takes none, run without --send-images or --label-with, or name another model."


class ProviderLLM:
    """A model of a provider that speaks one of m3b's wires.

    Args:
        wire: the protocol.
        key: the key.
        facts: window, prices and so on.
        base_url: the server; None for the SDK's own address (or what its `..._BASE_URL` variable says).
        retry: how patient to be.
        timeout_s: seconds without a byte after which a request counts as lost.
        spec: what `connect` makes the same model again from; its name if not given.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        key: Key,
        facts: ModelFacts,
        base_url: str | None = None,
        retry: Retry | None = None,
        timeout_s: float = 600.0,
        spec: str = "",
    ) -> None:
        self.name, self.spec, self.facts = wire.name, spec or wire.name, facts
        self._wire, self._key, self._base_url = wire, key, base_url
        self._retry, self._timeout_s = retry or Retry(), timeout_s
        self._client: Any = None
        self._lock = threading.Lock()
        self._has_answered = False

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`."""
        validate_conversation(request.messages)
        stream = TextStream(request.on_text, request.is_cancelled, self._key.value)
        reply = self._retry.run(lambda: self._send_adapted(request, stream), request.on_wait, stream.poll)
        stream.end()
        return reply

    def _send_adapted(self, request: LLMRequest, stream: TextStream) -> Reply:
        """Send a request; if the provider refuses a parameter of it, send it again without."""
        for _ in range(MAX_ADAPTATIONS):
            try:
                return self._send(request, stream)
            except BadRequest as refusal:
                adapted_wire = self._wire.adapt(str(refusal))
                if adapted_wire is None and type(refusal) is BadRequest and self._shows_images(request):
                    raise BadRequest(f"{refusal} {IMAGES_ADVICE}") from None
                if adapted_wire is None:
                    raise
            self._wire = adapted_wire
        return self._send(request, stream)

    def _shows_images(self, request: LLMRequest) -> bool:
        return self.facts.vision and any(message.images for message in request.messages)

    def _send(self, request: LLMRequest, stream: TextStream) -> Reply:
        wire = self._wire
        body = wire.to_body(request, self.facts)
        try:
            answer = self._fetch(wire, body, stream)
        except Exception as error:  # noqa: BLE001 - the provider's boundary: what is no error of it is raised unchanged
            failure = self._map_error(error)
        else:
            return wire.to_reply(cut_secret(answer, self._key.value), request, self.facts)
        # Raised outside the handler, so that it does not drag the SDK's error along, whose request holds the key.
        raise failure

    def _fetch(self, wire: Wire, body: dict[str, Any], stream: TextStream) -> Any:
        """Return the decoded response, streamed if somebody listens."""
        create = wire.get_method(self._open_client(wire))
        if stream.has_listener and wire.can_stream:
            stream.restart()
            try:
                events = create(stream=True, **body, **wire.stream_options)
                self._has_answered = True
                return wire.assemble(events, stream)
            except NotStreamed:
                wire.can_stream = False
        answer = create(**body)
        self._has_answered = True
        return wire.to_data(answer)

    def _map_error(self, error: Exception) -> Exception:
        self._has_answered = self._has_answered or isinstance(getattr(error, "status_code", None), int)
        url = getattr(self._client, "base_url", None) or self._base_url
        mapped_error = map_error(
            error,
            self.name,
            self._key.source,
            (self._key.value,),
            address=strip_credentials(str(url)).rstrip("/") if url else "",
            has_answered=self._has_answered,
        )
        return mapped_error or error

    def _open_client(self, wire: Wire) -> Any:
        """Return the SDK's client, without retries of its own: waiting is m3b's to count and to cancel."""
        with self._lock:
            if self._client is None:
                sdk, client_class = wire.import_sdk()
                timeout = sdk.Timeout(self._timeout_s, connect=CONNECT_S)
                is_local = self._base_url is not None and is_loopback(self._base_url)
                # A proxy of the environment must not be asked for this very machine.
                # A redirect is not followed: it would take the key to another host.
                http_client = sdk.DefaultHttpxClient(
                    trust_env=not is_local,
                    timeout=timeout,
                    follow_redirects=False,
                    event_hooks={"request": [ledger.make_request_hook(self.name)]},
                )
                self._client = client_class(
                    api_key=self._key.value,
                    base_url=self._base_url,
                    max_retries=0,
                    timeout=timeout,
                    http_client=http_client,
                )
            return self._client
