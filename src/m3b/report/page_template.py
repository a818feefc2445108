"""Render a self-contained page: jinja2 templates, style, scripts that the page's content security policy allows."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from m3b.markup.formatting import format_count, shorten
from m3b.markup.html import Html, replace_control_characters

STYLE, CURVES_STYLE, CURVES_SCRIPT, REPORT_SCRIPT = (
    "style.css",
    "uPlot.min.css",
    "uPlot.iife.min.js",
    "report.js",
)
"""Files in `static/`. uPlot 1.6.32 (MIT, uPlot.LICENSE) is the release of the npm package, unchanged."""


def render_page(template: str, *, scripts: Sequence[str] = (), styles: Sequence[str] = (STYLE,), **values: Any) -> str:
    """Return a page as text. Values are escaped unless they are `Html`.

    Args:
        scripts: files in `static/`, run in this order at the end of the page.
        styles: files in `static/`.
    """
    css = "\n".join(read_static(name) for name in styles)
    scripts_text = [read_static(name) for name in scripts]
    return (
        load_environment()
        .get_template(template)
        .render(
            css=Html(css),
            scripts=[Html(text) for text in scripts_text],
            policy=_make_policy(css, scripts_text),
            **values,
        )
    )


def _make_policy(css: str, scripts: Sequence[str]) -> str:
    """Return a content security policy that allows this style, these scripts and embedded pictures, and nothing else."""
    script_sources = f" script-src {' '.join(map(_hash_source, scripts))};" if scripts else ""
    return (
        f"default-src 'none'; img-src data:; style-src {_hash_source(css)};{script_sources} "
        "base-uri 'none'; form-action 'none'"
    )


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def read_static(name: str) -> str:
    """Return a file of `static/`."""
    return resources.files("m3b.report").joinpath("static", name).read_text(encoding="utf-8")


def embed_json(value: Any) -> Html:
    """Return JSON for a data block of a page: no character of it can end the block or start another one."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def embed_jpeg(content: bytes) -> str:
    """Return a JPEG as a data URI."""
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"


@cache
def load_environment(*packages: str) -> Environment:
    """Return the environment of the report's templates.

    Args:
        packages: packages whose `templates/` come first, such as another `layout.html` for the same pages.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "m3b.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: replace_control_characters(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": format_count, "shorten": shorten, "jpeg": embed_jpeg}
    return environment
