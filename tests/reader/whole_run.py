"""A whole run in a process of its own; prints which parsers of foreign formats m3b's own process has imported."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PARSERS = ("nibabel", "pydicom", "SimpleITK", "PIL", "h5py", "openpyxl", "scipy.io", "imageio", "tifffile", "cv2")
imported: dict[str, str] = {}


class Watcher(MetaPathFinder):
    """Notes who imports a parser first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Never finds anything; the next finder does."""
        if fullname in PARSERS and fullname not in imported:
            ours = [
                frame.filename
                for frame in traceback.extract_stack()
                if "/m3b/" in frame.filename or "shared" in frame.filename
            ]
            imported[fullname] = " <- ".join(reversed(ours[-6:]))
        return None


def forget() -> None:
    """Let every parser be imported anew."""
    for known in [
        one for one in sys.modules if one in PARSERS or one.startswith(tuple(f"{name}." for name in PARSERS))
    ]:
        del sys.modules[known]


if __name__ == "__main__":
    tests, data, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    sys.path[:0] = [str(tests), str(tests / "pipeline")]
    from pipeline_kit import REQUEST, actor, make_spots

    make_spots(data)
    forget()  # the kit draws pictures
    sys.meta_path.insert(0, Watcher())
    from PIL import Image  # noqa: F401 - shows that the watch works

    noticed = list(imported)
    imported.clear()
    forget()
    from m3b import Pipeline

    result = Pipeline(actor(), data=[data], out=out, sandbox=sys.argv[4]).run(REQUEST)
    print(json.dumps({"status": result.status, "noticed": noticed, "imported": imported}))
