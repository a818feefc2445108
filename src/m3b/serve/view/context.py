"""What the pages of `m3b view` share: settings, runs, and the templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute, Route

from m3b.report.page_template import CURVES_SCRIPT, CURVES_STYLE, REPORT_SCRIPT, STYLE, load_environment
from m3b.run.folder import RunFolder
from m3b.serve.view.run_index import RunIndex, make_key

VIEW_PACKAGE = "m3b.serve.view"
RUN_PAGES = {
    "run_overview": "Overview",
    "run_cases": "Cases",
    "run_data": "Data",
    "run_manifest": "Manifest",
    "run_live": "Live",
}
"""Names of the routes `/runs/{key}...` that are pages of one run, with their titles in its navigation."""


@dataclass(frozen=True)
class ViewSettings:
    """What `m3b view` serves.

    Args:
        token: without which nothing is answered.
        folders: run folders, or folders that hold some; the user's list of runs if there are none.
    """

    token: str
    folders: Sequence[Path] = ()


@dataclass(frozen=True)
class ViewContext:
    """What the functions of routes get."""

    settings: ViewSettings
    route_names: set[str] = field(default_factory=set)

    @cached_property
    def runs(self) -> RunIndex:
        return RunIndex(self.settings.folders)

    def find_run(self, request: Request) -> RunFolder:
        """Return the run of the path parameter `key`.

        Raises:
            HTTPException: 404, there is no such run, or it was removed.
        """
        run = self.runs.find(str(request.path_params["key"]))
        if run is None:
            raise HTTPException(404, "There is no such run; it may have been removed.")
        return run

    def render(self, request: Request, template: str, /, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page of a template in `m3b/serve/view/templates` or `m3b/report/templates`.

        Args:
            values: `run` (a `RunFolder`) adds the navigation of its pages; `scripts` and `styles` are names of static
                files beside those of every page; `is_wide` uses the whole width of the window.
        """
        run = values.get("run")
        page = (
            load_environment(VIEW_PACKAGE)
            .get_template(template)
            .render(
                {
                    "is_wide": False,
                    **values,
                    "is_list": request.url.path == "/",
                    "is_folder": request.url.path == "/folder",
                    "styles": (STYLE, CURVES_STYLE, "view.css", *values.get("styles", ())),
                    "scripts": (CURVES_SCRIPT, REPORT_SCRIPT, "view.js", *values.get("scripts", ())),
                    "tabs": self._list_tabs(request, run) if isinstance(run, RunFolder) else [],
                }
            )
        )
        return HTMLResponse(page, status)

    def _list_tabs(self, request: Request, run: RunFolder) -> list[tuple[str, str, bool]]:
        """Return address, title and whether it is the present one, for each page of a run."""
        pages = {
            name: str(request.app.url_path_for(name, key=make_key(run)))
            for name in RUN_PAGES
            if name in self.route_names
        }
        present = request.url.path
        return [
            (path, RUN_PAGES[name], path == present or (name == "run_cases" and present.startswith(f"{path}/")))
            for name, path in pages.items()
        ]


RouteMaker = Callable[[ViewContext], list[Route]]


def list_route_names(routes: Sequence[BaseRoute]) -> set[str]:
    """Return the names of routes."""
    return {route.name for route in routes if isinstance(route, Route)}
