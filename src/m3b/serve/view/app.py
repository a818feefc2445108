"""The ASGI application of `m3b view`: pages for a browser on this machine, behind a token."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import PurePath

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from m3b.serve.view import case_routes, compare_routes, data_routes, live_routes, run_routes
from m3b.serve.view.context import VIEW_PACKAGE, RouteMaker, ViewContext, ViewSettings, list_route_names
from m3b.serve.view.guard import ViewGuard

ROUTE_MAKERS: tuple[RouteMaker, ...] = (
    run_routes.make_routes,
    compare_routes.make_routes,
    live_routes.make_routes,
    case_routes.make_routes,
    data_routes.make_routes,
)
"""Functions that make the routes of each part."""
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".wasm": "application/wasm"}
"""Suffixes of static files that are served, with their media types."""


def make_view_app(settings: ViewSettings) -> Starlette:
    """Return the application; each request needs the token and a loopback host name."""
    context = ViewContext(settings)
    routes = [route for make_routes in ROUTE_MAKERS for route in make_routes(context)]
    context.route_names.update(list_route_names(routes))

    def show_error(request: Request, error: Exception) -> Response:
        status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
        return context.render(request, "error.html", status=status, code=status, text=text)

    return Starlette(
        routes=[*routes, Route("/static/{name}", send_static_file, name="static")],
        middleware=[Middleware(ViewGuard, token=settings.token)],
        exception_handlers={HTTPException: show_error},
    )


def send_static_file(request: Request) -> Response:
    """Return a file of `static/` of the view or of the report."""
    name = str(request.path_params["name"])
    package = _list_static_files().get(name)
    if package is None:
        raise HTTPException(404, "There is no such file.")
    content = resources.files(package).joinpath("static", name).read_bytes()
    return Response(content, media_type=MEDIA_TYPES[PurePath(name).suffix])


@cache
def _list_static_files() -> dict[str, str]:
    """Return name -> package of the files that are served."""
    return {
        file.name: package
        for package in ("m3b.report", VIEW_PACKAGE)
        for file in resources.files(package).joinpath("static").iterdir()
        if PurePath(file.name).suffix in MEDIA_TYPES
    }
