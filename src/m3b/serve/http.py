"""HTTP of m3b's servers: a socket, and a token without which nothing is answered."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_VARIABLE = "M3B_SERVE_TOKEN"  # nosec B105: the name of a variable
MIN_TOKEN_CHARS = 16


def choose_token() -> tuple[str, bool]:
    """Return the token of `$M3B_SERVE_TOKEN`, or a new one, and whether it is new.

    Raises:
        UsageError: the variable's token has fewer than 16 characters.
    """
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given and len(given) < MIN_TOKEN_CHARS:
        raise UsageError(
            f"The token in {TOKEN_VARIABLE} has {len(given)} characters; it needs {MIN_TOKEN_CHARS} or more."
        )
    return (given, False) if given else (secrets.token_urlsafe(24), True)


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: the address is not of this machine, or the port is taken.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{host}:{port} cannot be opened: {reason}. Choose another --host or --port.") from error


class TokenGuard:
    """Answers requests only if they carry the token as `Authorization: Bearer`; 401 otherwise."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        if scope["type"] != "http" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        from starlette.responses import JSONResponse

        response = JSONResponse({"error": "This server needs its token: Authorization: Bearer TOKEN."}, 401)
        await response(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._expected)


def make_mcp_app(server: MCPServer[Any], token: str, host: str, port: int, names: Sequence[str] = ()) -> Starlette:
    """Return the application that serves `/mcp`, for requests with the token alone, under the names that are allowed.

    Args:
        names: further host names, as clients or a proxy send them, with a port if it is not that of the server.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    own_names = {f"[{host}]" if ":" in host else host, "127.0.0.1", "localhost", *names}
    hosts = sorted({name for own_name in own_names for name in (f"{own_name}:{port}", own_name)})
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{name}" for name in hosts])
    app = server.streamable_http_app(transport_security=security, host=host)
    app.add_middleware(TokenGuard, token=token)
    return app


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application on a listening socket until the process is stopped."""
    import uvicorn

    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
