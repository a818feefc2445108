"""Opening an SDK's client: both vendors' SDKs are built alike."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from . import keys, ledger

CONNECT_S = 15.0


def open_client(
    sdk: ModuleType, maker: str, *, name: str, key: keys.Key, base_url: str | None, timeout_s: float
) -> Any:
    """The client of one provider, without retries of its own: waiting is m3b's to count and to cancel.

    Args:
        sdk: the imported package.
        maker: its client class.
        name: the model's name in the ledger.
    """
    timeout = sdk.Timeout(timeout_s, connect=CONNECT_S)
    local = base_url is not None and keys.is_loopback(base_url)
    # A proxy of the environment must not be asked for this very machine.
    # A redirect is not followed: it would take the key to another host.
    http = sdk.DefaultHttpxClient(
        trust_env=not local,
        timeout=timeout,
        follow_redirects=False,
        event_hooks={"request": [ledger.hook(name)]},
    )
    return getattr(sdk, maker)(api_key=key.value, base_url=base_url, max_retries=0, timeout=timeout, http_client=http)
