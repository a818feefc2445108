"""The relay to the language model for external systems: `loopback` runs inside the sandbox, `server` outside."""

from .server import LOOPBACK_PROGRAM, MODEL_ROUTE, Relay, UsageMeter

__all__ = ["LOOPBACK_PROGRAM", "MODEL_ROUTE", "UsageMeter", "Relay"]
