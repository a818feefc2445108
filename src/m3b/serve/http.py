"""HTTP of m3b's servers: a socket, and a token without which nothing is answered."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError

if TYPE_CHECKING:
    import uvicorn
    from mcp.server.mcpserver import MCPServer
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)
TOKEN_VARIABLE = "M3B_SERVE_TOKEN"  # nosec B105: the name of a variable
MIN_TOKEN_CHARS = 16
ANSWER_HEADERS = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
MAX_CONNECTIONS = 500
MAX_HEADER_BYTES = 16 * 1024
KEEP_ALIVE_S = 5
"""Time that a connection stays open without a further request."""
MAX_SHUTDOWN_S = 2
"""Time for open requests, such as streams of events, when the server is stopped."""


def choose_token() -> tuple[str, bool]:
    """Return the token of `$M3B_SERVE_TOKEN`, or a new one, and whether it is new.

    Raises:
        UsageError: the variable's token has fewer than 16 characters.
    """
    given = read_token()
    return (given, False) if given else (secrets.token_urlsafe(24), True)


def read_token(file: Path | None = None) -> str:
    """Return the token of a file, or of `$M3B_SERVE_TOKEN`; empty if there is none.

    Raises:
        UsageError: the file cannot be read, or the token has fewer than 16 characters.
    """
    if file is not None and file.is_file() and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("Other users of this machine can read the token file %s: chmod 600 it.", file)
    try:
        token = (os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {file} cannot be read: {getattr(error, 'strerror', 'no text')}.") from error
    if (token or file is not None) and len(token) < MIN_TOKEN_CHARS:
        place = TOKEN_VARIABLE if file is None else file
        raise UsageError(f"The token in {place} has {len(token)} characters; it needs {MIN_TOKEN_CHARS} or more.")
    return token


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def list_own_names(host: str, port: int, names: Sequence[str] = ()) -> list[str]:
    """Return the values of the header `Host` that a server is reached by, with and without its port.

    Args:
        names: further host names.
    """
    own_names = {f"[{host}]" if ":" in host else host, "127.0.0.1", "localhost", *names}
    return sorted({name for own_name in own_names for name in (f"{own_name}:{port}", own_name)})


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: the address is not of this machine, or the port is taken.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else "a port is a number from 0 to 65535"
        raise UsageError(
            f"{host}:{port} cannot be opened: {reason}. Choose another --port; 0 takes a free one."
        ) from error


class TokenGuard:
    """Answers requests only if they carry the token as `Authorization: Bearer`; 401 otherwise.

    Args:
        open_paths: paths that need no token.
    """

    def __init__(self, app: ASGIApp, token: str, open_paths: Sequence[str] = ()) -> None:
        self._app, self._expected, self._open_paths = app, token.encode(), frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        from starlette.responses import JSONResponse

        message = "This server needs its token: Authorization: Bearer TOKEN."
        response = JSONResponse(
            {"error": {"code": "no_token", "message": message}}, 401, headers={"WWW-Authenticate": "Bearer"}
        )
        await response(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._expected)


class HeaderGuard:
    """Refuses requests whose headers a proxy may read differently, and forbids pages of other origins to use answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        from starlette.datastructures import MutableHeaders
        from starlette.responses import JSONResponse

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(ANSWER_HEADERS)
            await send(message)

        names = [name for name, _ in scope.get("headers", ())]
        if names.count(b"host") > 1 or {b"content-length", b"transfer-encoding"} <= set(names):
            content = {"error": {"code": "ambiguous_headers", "message": "Two headers contradict each other."}}
            response = JSONResponse(content, 400, headers={"Connection": "close"})
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


class LocalNameGuard:
    """Answers requests only under names of this machine, and none of web pages from elsewhere; 403 otherwise.

    Args:
        names: values of the header `Host`.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app, self._names = app, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        origin = headers.get(b"origin", "")
        is_local = (
            headers.get(b"host", "") in self._names
            and (not origin or origin.partition("//")[2] in self._names)
            and headers.get(b"sec-fetch-site", "") != "cross-site"
        )
        if scope["type"] != "http" or is_local:
            await self._app(scope, receive, send)
            return
        from starlette.responses import JSONResponse

        message = "Without a token this server answers requests of this machine alone."
        await JSONResponse({"error": {"code": "other_host", "message": message}}, 403)(scope, receive, send)


def make_mcp_app(server: MCPServer[Any], token: str, host: str, port: int, names: Sequence[str] = ()) -> Starlette:
    """Return the application that serves `/mcp`, for requests with the token alone, under the names that are allowed.

    Args:
        names: further host names, as clients or a proxy send them, with a port if it is not that of the server.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    hosts = list_own_names(host, port, names)
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{name}" for name in hosts])
    app = server.streamable_http_app(transport_security=security, host=host)
    app.add_middleware(TokenGuard, token=token)
    return app


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application on a listening socket until the process is stopped."""
    make_server(app).run(sockets=[listener])


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application: with limits, and without belief in headers that name another client."""
    import uvicorn

    config = uvicorn.Config(
        app, http="h11", log_level="warning", access_log=False, proxy_headers=False, limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=MAX_SHUTDOWN_S,
    )  # fmt: skip
    return uvicorn.Server(config)
