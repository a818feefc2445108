"""Pictures, volumes, clips and Parquet tables with images: what `m3b.dataset.formats` says about their header and values."""

from __future__ import annotations

from pathlib import Path

from m3b.data.phi import Phi
from m3b.dataset.formats import describe_file
from m3b.errors import DataError


def preview(path: Path, phi: Phi) -> list[str]:
    """Return lines about an image file.

    Raises:
        DataError: it cannot be read; the message leaves out its path, which the caller knows by the agent's name.
    """
    try:
        return describe_file(path).splitlines()
    except DataError as error:
        raise DataError(str(error).removeprefix(f"{path}: ").replace(f"{path.parent}/", "")) from None
