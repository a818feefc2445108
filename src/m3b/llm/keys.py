"""Where keys come from, and that they go nowhere else."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from m3b.errors import Authentication

CUSTOM_SERVER_KEY_VARIABLE = "M3B_API_KEY"
"""The variable with the key of a server named after `@`. A provider's own key is never sent to another host."""

NO_KEY = "none"


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key that does not show itself.

    Args:
        value: the key.
        source: the variable it came from, or how else it was given.
    """

    value: str
    source: str

    def __repr__(self) -> str:
        return f"Key(from {self.source})"

    __str__ = __repr__


def strip_credentials(base_url: str) -> str:
    """Return an address without the name and password that it may hold."""
    return re.sub(r"//[^/\s]*@", "//", base_url).partition("?")[0]


def is_loopback(base_url: str) -> bool:
    """Return whether the address is on this machine."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_key(variables: tuple[str, ...], base_url: str | None, provider: str) -> Key:
    """Return the key for a provider, or for the server that `base_url` names.

    Args:
        variables: the provider's usual variables, the preferred one first; none for a provider without keys.
        base_url: the address the user gave after `@`, or None for the provider's own.
        provider: its name, for the error.

    Raises:
        Authentication: no variable is set; the message names the one to set.
    """
    candidates = variables if base_url is None else (CUSTOM_SERVER_KEY_VARIABLE,)
    for variable in candidates:
        value = os.environ.get(variable, "").strip()
        if value:
            return Key(value, variable)
    if not candidates or (base_url is not None and is_loopback(base_url)):
        return Key(NO_KEY, "nowhere: no key is needed")
    if base_url is not None:
        raise Authentication(
            f"{provider} at {base_url}: no key. Set {CUSTOM_SERVER_KEY_VARIABLE} to this server's key, or to {NO_KEY!r} if it needs"
            " none. The provider's own key is not sent to other hosts."
        )
    raise Authentication(f"{provider}: no key. Set {' or '.join(candidates)} in the environment.")
