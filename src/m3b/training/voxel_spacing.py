"""Files without a true spacing in the header: none at all, or the 1 x 1 x 1 mm that converters write if they know none.

Resampled as if it were true, a placeholder shrinks a chest to a few voxels. Such a volume is assumed to show the usual extent of the
body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PLACEHOLDER_RATIO = 2.0
"""Ratio to the usual extent along an axis from which a spacing of 1 mm everywhere is considered a placeholder."""

Spacing = Sequence[float] | None


def usual_extent(images: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Return the median extent in mm of the volumes with a known spacing; None if there are too few.

    Args:
        images: each with `shape` and `spacing` (or None).
    """
    with_spacing = [image for image in images if image["spacing"] and len(image["shape"]) == 3]
    trusted = [image for image in with_spacing if not _is_unit(image["spacing"])]
    if not trusted or len(trusted) < len(images) / 4:
        return None
    extents = [np.array(image["shape"], float) * np.array(image["spacing"]) for image in trusted]
    return [round(float(side), 1) for side in np.median(extents, axis=0)]


def true_spacing(shape: Sequence[int], spacing: Spacing, extent: Sequence[float] | None) -> Spacing:
    """Return the file's spacing, or if it is missing or a placeholder, the one that the usual extent implies."""
    if extent is None or len(shape) != len(extent):
        return spacing
    if spacing and not (_is_unit(spacing) and _is_implausible(shape, extent)):
        return spacing
    return [float(side) / count for side, count in zip(extent, shape, strict=True)]


def resolve_spacings(images: Sequence[dict[str, Any]]) -> tuple[list[float] | None, list[str]]:
    """Set the resolved spacing of each of `images`; return the usual extent, and the paths of replaced spacings."""
    extent, changed = usual_extent(images), []
    for image in images:
        spacing = true_spacing(image["shape"], image["spacing"], extent)
        if spacing is not image["spacing"]:
            changed.append(str(image["path"]))
        image["spacing"] = spacing
    return extent, changed


def measure_field(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `extent` (`usual_extent`), and if most volumes have a spacing: `view_ratio`, how much larger wide fields of view are than
    narrow ones; `body` and `voxel`, mm of most bodies and of the typical voxel along each axis. Otherwise `view_ratio` is 0.

    Args:
        images: each with `shape`, `spacing` (or None) and `body`, its limits as shares of the axes.
    """
    extent, measured_fields = usual_extent(images), []
    for image in images:
        spacing = true_spacing(image["shape"], image["spacing"], extent)
        if spacing and len(spacing) == len(image["shape"]) == 3:
            measured_fields.append((np.array(image["shape"], float) * spacing, np.ptp(image["body"], axis=1), spacing))
    facts: dict[str, Any] = {"extent": extent, "view_ratio": 0.0, "body": None, "voxel": None}
    if 2 * len(measured_fields) <= len(images):
        return facts
    fields, shares, spacings = (np.array(part, float) for part in zip(*measured_fields, strict=True))
    narrow, wide = np.percentile(fields, (5, 95), axis=0)
    ratio = float((wide / narrow).max())
    if extent is None and ratio >= PLACEHOLDER_RATIO and all(map(_is_unit, spacings)):  # placeholders in every file
        return facts
    body = np.percentile(fields * shares, 90, axis=0)
    return {**facts, "view_ratio": ratio, "body": body.tolist(), "voxel": np.median(spacings, axis=0).tolist()}


MIN_VIEW_RATIO = 1.1
"""`view_ratio` from which whole volumes are shown at one physical scale. Stretched to one grid, equal structures would differ in size
by a tenth."""


FIELD_MARGIN = 1.05
"""Size of the field as a multiple of the bodies: thin ends of a body are below the noise that `body_limits` ignores."""


def physical_grid(facts: Mapping[str, Any], max_side: int, min_side: int = 16, step: int = 8) -> dict[str, Any]:
    """Return `size`, `fit`, `field`, `extent` and `why_fit` of the plan of a model that sees whole volumes, if they need one physical
    scale: the finest voxels with which typical bodies fit into `max_side`; else only `fit` and `why_fit`.

    Args:
        facts: of `measure_field`.
        max_side: voxels of the longest side; `min_side` of the shortest; all are multiples of `step`.
    """
    ratio = float(facts["view_ratio"])
    if ratio < MIN_VIEW_RATIO:
        reason = f"fields of view hardly differ (by a factor of {ratio:.2f})" if ratio else "voxel sizes are unknown"
        return {"fit": "stretch", "field": None, "why_fit": f"{reason}: each is stretched to the input"}
    body = FIELD_MARGIN * np.array(facts["body"])
    voxel = np.maximum(facts["voxel"], (body / max_side).max())
    size = np.clip(np.ceil(body / voxel / step - 1e-6) * step, min_side, max_side)
    return {
        "size": [int(side) for side in size],
        "fit": "field",
        "field": [round(float(side), 2) for side in size * voxel],
        "extent": facts["extent"],
        "why_fit": f"fields of view differ by a factor of {ratio:.2f}: one physical scale for all, cropped or padded around the body",
    }


def describe_grid(plan: Mapping[str, Any]) -> str:
    """Return how volumes are brought to the input's grid, and why; "" if the plan does not say."""
    if plan.get("spacing") or "why_fit" not in plan or plan["fit"] != "field":
        return "" if plan.get("spacing") else str(plan.get("why_fit", ""))
    voxel = " x ".join(f"{side / count:.3g}" for side, count in zip(plan["field"], plan["size"], strict=True))
    return f"{plan['why_fit']}, voxels of {voxel} mm"


def describe_placeholders(facts: Mapping[str, Any]) -> list[str]:
    """Return a line if spacings were replaced."""
    files = facts["placeholders"]
    if not files:
        return []
    return [
        f"{len(files)} sampled volumes have no spacing, or 1 x 1 x 1 mm as a placeholder (such as {files[0]}): each is assumed to "
        f"show the usual extent, {facts['extent']} mm"
    ]


def _is_unit(spacing: Sequence[float]) -> bool:
    return all(abs(step - 1.0) < 1e-3 for step in spacing)


def _is_implausible(shape: Sequence[int], extent: Sequence[float]) -> bool:
    share = np.array(shape, float) / np.array(extent)
    return bool((share > PLACEHOLDER_RATIO).any() or (share < 1 / PLACEHOLDER_RATIO).any())
