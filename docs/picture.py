"""The picture of docs/architecture.md, drawn from the code: packages by layer, and what imports what.

The layers are those of the import-linter contract in pyproject.toml; boxes, sizes and arrows come from the source files.
An arrow that follows from others (a uses b, b uses c, a uses c) is left out, and so are those to the lowest layers.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "m3b"
WIDTH, ROW, HEIGHT, GAP, MARGIN = 1120, 92, 50, 14, 16
FOR_ALL = 2
"""The lowest layers, which everything may use: arrows to them would only say so."""
LETTER = 5.9
"""Width of a letter of the small font, in pixels."""


def layers() -> list[list[str]]:
    """The packages and modules of each layer, the topmost first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    lines = settings["contracts"][0]["layers"]
    return [[name.strip() for name in line.replace(":", "|").split("|")] for line in lines]


def files(part: str) -> list[Path]:
    """The modules of a package, or the one of this name."""
    folder = SRC / part
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SRC / f"{part}.py"]


def about(part: str) -> str:
    """The first sentence of its docstring."""
    folder = SRC / part
    file = folder / "__init__.py" if folder.is_dir() else SRC / f"{part}.py"
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split(". ")[0]


def list_imports(part: str, parts: set[str]) -> set[str]:
    """The other parts that it imports, those for type checkers included."""
    imported_parts: set[str] = set()
    for file in files(part):
        package = ["m3b", *file.relative_to(SRC).parts[:-1]]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported_parts |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("m3b.")}
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                names = [[*base, *(node.module or "").split("."), alias.name] for alias in node.names]
                imported_parts |= {name[1] for raw in names if (name := [word for word in raw if word])[:1] == ["m3b"]}
    return (imported_parts & parts) - {part}


def remove_indirect(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same order with as few arrows as it takes."""

    def reach(name: str, visited: set[str]) -> set[str]:
        for imported_name in graph[name] - visited:
            visited.add(imported_name)
            reach(imported_name, visited)
        return visited

    indirect = {name: {far for near in imports for far in reach(near, set())} for name, imports in graph.items()}
    return {name: imports - indirect[name] for name, imports in graph.items()}


def draw() -> str:
    """The picture as SVG."""
    rows = layers()
    parts = {name for row in rows for name in row}
    graph = {name: list_imports(name, parts) for name in parts}
    level = {name: number for number, row in enumerate(rows) for name in row}
    base = len(rows) - FOR_ALL
    down = {
        name: {target for target in imports if level[name] < level[target] < base} for name, imports in graph.items()
    }
    places, shapes = {}, []
    for number, row in enumerate(rows):
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            x, y = MARGIN + place * (width + GAP), MARGIN + number * ROW
            places[name] = (x + width / 2, y)
            shapes.append(_box(name, x, y, width))
    arrows = [
        f'<line x1="{places[name][0]:.0f}" y1="{places[name][1] + HEIGHT}" x2="{places[target][0]:.0f}" '
        f'y2="{places[target][1] - 3}"/>'
        for name, targets in sorted(remove_indirect(down).items())
        for target in sorted(targets)
    ]
    height = 2 * MARGIN + ROW * (len(rows) - 1) + HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
        "<title>Packages of m3b by layer; an arrow goes from what imports to what is imported</title>\n"
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" orient="auto">'
        '<path d="M0 0 L6 3 L0 6z" fill="#7a8794"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
        f'<g stroke="#9aa5b1" stroke-width="1" marker-end="url(#tip)">\n{_join_lines(arrows)}\n</g>\n'
        f"{_join_lines(shapes)}\n</svg>\n"
    )


def _join_lines(parts: list[str]) -> str:
    return "\n".join(parts)


def _box(name: str, x: float, y: float, width: float) -> str:
    several = (SRC / name).is_dir()
    lines = _wrapped(about(name), int((width - 12) / LETTER))
    words = "".join(
        f'<text x="{x + 8:.0f}" y="{y + 30 + 12 * number}" font-size="10.5" fill="#44505c">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{HEIGHT}" rx="5" fill="{"#eaf1f8" if several else "#f6f6f2"}" '
        f'stroke="#5f7183"/><text x="{x + 8:.0f}" y="{y + 16}" font-size="13" font-weight="bold" fill="#1d2733">{name}</text>{words}'
    )


def _wrapped(text: str, letters: int) -> list[str]:
    """At most two lines of so many letters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > letters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    cut = lines[:2]
    return cut if len(lines) <= 2 else [cut[0], f"{cut[1][: letters - 1].rstrip(' ,;:')}…"]
