"""Who may see the pages of `m3b view`: requests under a loopback name, with the token, from its own pages."""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names that requests may use: a foreign name that leads to this machine (DNS rebinding) is refused."""
TOKEN_PARAMETER = "token"  # nosec B105: the name of a parameter
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy of responses that have none of their own."""
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class ViewGuard:
    """Refuses requests under foreign host names, without the token, and changes that other pages ask for.

    The token comes once, in the address that `m3b view` prints; the answer sets a cookie that scripts cannot read and that
    other sites do not send. Browsers send it to servers at other ports of this machine too, so it is not the token, but a
    random value that ends with this process.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token
        self._session = secrets.token_urlsafe(24)
        self.cookie_name = f"m3b_view_{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        response = self._refuse(scope) if scope["type"] == "http" else PlainTextResponse("", 400)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("content-security-policy", CONTENT_POLICY)
                headers.setdefault("cache-control", "no-store")
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        await (response or self._app)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the response to a request that the application must not see; None if it may."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _get_host_name(f"//{host}") not in LOOPBACK_NAMES:
            return PlainTextResponse("This server answers on this machine alone: use the address that it printed.", 421)
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin", "") not in (f"http://{host}",):
            return PlainTextResponse("Changes are accepted from pages of this server alone.", 403)
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name == TOKEN_PARAMETER and _are_equal(value, self._token) for name, value in pairs):
            rest = urlencode([(name, value) for name, value in pairs if name != TOKEN_PARAMETER])
            path = "/" + scope["path"].lstrip("/")
            redirect = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            redirect.set_cookie(self.cookie_name, self._session, httponly=True, samesite="strict", path="/")
            return redirect
        if not _are_equal(_read_cookie(headers, self.cookie_name), self._session):
            return PlainTextResponse("These pages need their token: open the address that `m3b view` printed.", 401)
        return None


def _are_equal(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def _get_host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _read_cookie(headers: Headers, name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
