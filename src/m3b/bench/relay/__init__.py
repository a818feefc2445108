"""The language model of an outside system: `server` answers outside the sandbox what `inside` asks within it."""

from .server import LOOPBACK_PROGRAM, MODEL_ROUTE, Relay, UsageMeter

__all__ = ["LOOPBACK_PROGRAM", "MODEL_ROUTE", "UsageMeter", "Relay"]
