"""The language model of an outside system: `server` answers outside the sandbox what `inside` asks within it."""

from .server import INSIDE, ROUTE, Meter, Relay

__all__ = ["INSIDE", "ROUTE", "Meter", "Relay"]
