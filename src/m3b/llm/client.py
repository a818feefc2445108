"""A provider's SDK: its client, opened when first needed, and the way of every request through it.

Both vendors' SDKs are built alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from . import keys, ledger
from .error_mapping import map_error
from .served import strip_credentials
from .streaming import NotStreamed, TextStream
from .wire import decode_json_text

CONNECT_S = 6.0  # not 5: with their own defaults, 600 s and 5 s, an SDK refuses long replies that are not streamed

StreamAssembler = Callable[[Any, TextStream, str], Any]
"""(events of a stream, relay, model's name) to the decoded response."""


class SdkClient:
    """One provider through its SDK.

    Args:
        import_sdk: imports the SDK, when it is first needed.
        client_class: its client class.
        name: the model's name in errors and in the ledger.
        dump_options: how the SDK's answers become plain data (arguments of pydantic's `model_dump`).
    """

    def __init__(
        self,
        import_sdk: Callable[[], ModuleType],
        client_class: str,
        *,
        name: str,
        key: keys.Key,
        base_url: str | None,
        timeout_s: float,
        dump_options: Mapping[str, Any],
    ) -> None:
        self._import_sdk, self._client_class, self._name = import_sdk, client_class, name
        self._key, self._base_url, self._timeout_s = key, base_url, timeout_s
        self._dump_options = dict(dump_options)
        self._client: Any = None
        self._lock = threading.Lock()
        self._has_answered = False
        self.streams = True
        """Until the server answers a request for a stream without one."""

    def __repr__(self) -> str:
        return f"Sdk({self._client_class}, {self._name}, {self._key!r}, base_url={self._base_url!r})"

    def get_client(self) -> Any:
        """The SDK's client, without retries of its own: waiting is m3b's to count and to cancel."""
        with self._lock:
            if self._client is None:
                sdk = self._import_sdk()
                timeout = sdk.Timeout(self._timeout_s, connect=CONNECT_S)
                is_local = self._base_url is not None and keys.is_loopback(self._base_url)
                # A proxy of the environment must not be asked for this very machine.
                # A redirect is not followed: it would take the key to another host.
                http_client = sdk.DefaultHttpxClient(
                    trust_env=not is_local,
                    timeout=timeout,
                    follow_redirects=False,
                    event_hooks={"request": [ledger.make_request_hook(self._name)]},
                )
                self._client = getattr(sdk, self._client_class)(
                    api_key=self._key.value,
                    base_url=self._base_url,
                    max_retries=0,
                    timeout=timeout,
                    http_client=http_client,
                )
            return self._client

    def send(
        self,
        method: Callable[[Any], Any],
        request: Mapping[str, Any],
        relay: TextStream,
        assemble: StreamAssembler,
        stream_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """The decoded response, streamed or not. Errors are raised outside the handler, so that none drags the SDK's
        along: its request holds the key.

        Args:
            method: the SDK's method of the client; opening the client may fail as the request may.
            stream_options: what a request for a stream says besides.
        """
        try:
            create = method(self.get_client())
            if relay.has_listener and self.streams:
                relay.restart()
                try:
                    stream = create(stream=True, **request, **(stream_options or {}))
                    self._has_answered = True
                    return assemble(stream, relay, self._name)
                except NotStreamed:
                    self.streams = False
            answer = create(**request)
            self._has_answered = True
            return (
                answer.model_dump(**self._dump_options) if hasattr(answer, "model_dump") else decode_json_text(answer)
            )
        except Exception as error:  # noqa: BLE001 - the provider's boundary: whatever it is not, is raised unchanged
            self._has_answered = self._has_answered or isinstance(getattr(error, "status_code", None), int)
            mapped_error = map_error(
                error,
                self._name,
                self._key.source,
                (self._key.value,),
                address=self._format_address(),
                has_answered=self._has_answered,
            )
            failure: Exception = mapped_error or error
        raise failure

    def _format_address(self) -> str:
        """Where requests go, as a message may show it."""
        url = getattr(self._client, "base_url", None) or self._base_url
        return strip_credentials(str(url)).rstrip("/") if url else ""
