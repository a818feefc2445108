"""The documentation site: it is built without warnings, leads to every page, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "-c",
        "docs",
        ".",
        str(folder),
    ]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_all_pages_are_in_the_navigation_and_in_the_search(site: Path) -> None:
    first_page = (site / "docs/index.html").read_text(encoding="utf-8")
    navigation = first_page.partition('<div class="sidebar-tree">')[2].partition("</div>")[0]
    links = set(re.findall(r'href="([\w-]+)\.html"', navigation))
    assert links == {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    for caption in ("Tutorials", "How-to guides", "Reference", "Explanation"):
        assert caption in navigation
    search = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "docs/metrics" in search
    assert "benchmarks/RESULTS" in search


@pytest.mark.slow
def test_public_names_have_their_docstrings(site: Path) -> None:
    import m3b

    page = (site / "docs/api.html").read_text(encoding="utf-8")
    assert {name for name in m3b.__all__ if f'id="m3b.{name}"' not in page and f'.{name}"' not in page} == set()


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in ("docs/index.html", "docs/api.html", "docs/security.html"):
        text = (site / page).read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="([^"]+)"', text) + re.findall(
            r'<link[^>]+href="([^"]+)"', text
        )
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []
