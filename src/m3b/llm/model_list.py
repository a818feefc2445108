"""Which models a server has, asked by the list that every server of OpenAI's protocol gives."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import unquote, urlsplit

from m3b.errors import Authentication, UsageError
from m3b.llm.keys import Key, is_loopback, strip_credentials

TIMEOUT_S = 5.0
MAX_LIST_BYTES = 4_000_000
"""Bytes of a list that are read."""

_NON_CHAT_MODELS = re.compile(r"embed|rerank|whisper|tts", re.IGNORECASE)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would take the key to another host."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def list_models(provider: str, base_url: str, key: Key) -> list[str]:
    """Return the names of the models that can be talked to, in the server's order.

    Raises:
        UsageError: no server answers there, or it has no list.
        Authentication: it refuses the key.
    """
    address = strip_credentials(base_url)
    request = urllib.request.Request(
        f"{address.rstrip('/')}/models", headers={"Authorization": _make_authorization(base_url, key)}
    )
    proxies: dict[str, str] | None = {} if is_loopback(base_url) else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            entries = json.loads(answer.read(MAX_LIST_BYTES))["data"]
        names = [str(entry["id"]) for entry in entries]
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise Authentication(
                f"{provider} at {address}: HTTP {error.code}. The key came from {key.source}."
            ) from None
        raise UsageError(
            f"{provider} at {address}: HTTP {error.code} for its list of models. Check the address (most servers want it"
            f" to end in /v1), or name the model: {provider}:MODEL."
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise UsageError(
            f"{provider}: no server answers at {address} ({getattr(reason, 'strerror', None) or reason}). Start it, or check"
            " the address."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{provider} at {address}: what answers there gives no list of models. Check the address, or name the"
            f" model: {provider}:MODEL."
        ) from None
    return [name for name in names if not _NON_CHAT_MODELS.search(name)]


def _make_authorization(base_url: str, key: Key) -> str:
    """Return the header that opens the door: name and password where the address holds them, else the key."""
    parts = urlsplit(base_url)
    if parts.username is None:
        return f"Bearer {key.value}"
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
