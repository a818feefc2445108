"""Surfaces of masks with their true size: area elements for NSD, border voxels for HD95. 2D and 3D.

A surface element sits at the centre of each cell of 2 x 2 (x 2) neighbouring voxels that are not all equal. Its area
is that of the surface that cuts the cell's edges halfway between voxels inside and outside, as marching cubes and
marching squares draw it, with the voxel spacing (Nikolov et al., arXiv 1809.04430, which defines NSD on it).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, spatial

from .cases import Floats

Mask = NDArray[np.bool_]
_Point = tuple[float, float, float]


def _crossings(code: int, fixed: int, face_side: int) -> list[tuple[_Point, _Point]]:
    """Segments of the surface on one face of the unit cube, each with the inside on its left, seen from outside.

    Of the two ways to draw a face with two inside corners on a diagonal, the one that keeps them apart is taken, from
    both sides of the face, so the surface has no holes.
    """
    first, second = ((fixed + 1) % 3, (fixed + 2) % 3) if face_side else ((fixed + 2) % 3, (fixed + 1) % 3)
    corners = []
    for a, b in ((0, 0), (1, 0), (1, 1), (0, 1)):  # counter-clockwise seen from outside
        corner = [0, 0, 0]
        corner[fixed], corner[first], corner[second] = face_side, a, b
        corners.append((corner, bool(code >> (4 * corner[0] + 2 * corner[1] + corner[2]) & 1)))
    midpoints, enters = [], []
    for (start, start_inside), (end, end_inside) in zip(corners, corners[1:] + corners[:1], strict=True):
        if start_inside != end_inside:
            midpoints.append((start[0] / 2 + end[0] / 2, start[1] / 2 + end[1] / 2, start[2] / 2 + end[2] / 2))
            enters.append(end_inside)
    count = len(midpoints)
    return [(midpoints[k], midpoints[(k + 1) % count]) for k in range(count) if enters[k]]


def _loops(code: int) -> list[list[_Point]]:
    """The closed polygons in which the surface cuts the cube."""
    follow: dict[_Point, _Point] = {}
    for fixed, face_side in product(range(3), (0, 1)):
        for start, end in _crossings(code, fixed, face_side):
            follow[start] = end
    loops = []
    while follow:
        start, point = follow.popitem()
        loop = [start]
        while point != start:
            loop.append(point)
            point = follow.pop(point)
        loops.append(loop)
    return loops


@lru_cache(maxsize=64)
def _surface_area_table(spacing: tuple[float, ...]) -> Floats:
    """Code of the corners -> area in mm2 (3D; length in mm in 2D). A polygon is a fan of triangles from its middle."""
    is_2d = len(spacing) == 2
    scale = np.array((1.0, *spacing) if is_2d else spacing)
    table = np.zeros(16 if is_2d else 256)
    for code in range(len(table)):
        if is_2d:
            pairs = _crossings(code | code << 4, 0, 1)
            table[code] = sum(float(np.linalg.norm((np.array(a) - np.array(b)) * scale)) for a, b in pairs)
            continue
        for loop in _loops(code):
            points = np.array(loop) * scale
            spokes = points - points.mean(axis=0)
            table[code] += float(np.linalg.norm(np.cross(spokes, np.roll(spokes, -1, axis=0)), axis=1).sum() / 2)
    return table


def surface_elements(mask: Mask, spacing: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Where the surface is and how large each piece.

    Args:
        mask: 2D or 3D; outside the image is background.
        spacing: of the voxels in mm, one for each axis.

    Returns:
        (elements, axes) positions in mm from the first voxel's centre; (elements,) areas in mm2 (2D: lengths in mm).
    """
    dimensions = mask.ndim
    box = ndimage.find_objects(mask.astype(np.uint8))
    if not box or box[0] is None:
        return np.empty((0, dimensions)), np.empty(0)
    padded = np.pad(mask[box[0]], 1).astype(np.uint8)
    code = np.zeros(tuple(size - 1 for size in padded.shape), dtype=np.uint8)
    for bit, corner in enumerate(product((0, 1), repeat=dimensions)):
        window = tuple(slice(step, step + size) for step, size in zip(corner, code.shape, strict=True))
        code |= padded[window] << bit
    full = (1 << 2**dimensions) - 1
    surface_cells = np.nonzero((code != 0) & (code != full))
    origin = np.array([part.start for part in box[0]]) - 0.5
    return (np.stack(surface_cells, axis=1) + origin) * np.array(spacing), _surface_area_table(spacing)[
        code[surface_cells]
    ]


def border_voxels(mask: Mask, spacing: tuple[float, ...]) -> Floats:
    """(voxels, axes) positions in mm of mask voxels with a face on the background or on the edge of the image."""
    inner = ndimage.binary_erosion(mask, border_value=0)
    return np.asarray(np.argwhere(mask & ~inner) * np.array(spacing), dtype=np.float64)


def nearest_distances(points: Floats, targets: Floats) -> Floats:
    """(points,) distance of each point to the nearest of the others, mm."""
    distances, _ = spatial.cKDTree(targets, balanced_tree=False, compact_nodes=False).query(points)  # quicker to build
    return np.asarray(distances, dtype=np.float64)


def nsd(prediction: Mask, reference: Mask, spacing: tuple[float, ...], tolerance: float) -> float:
    """Normalised surface distance: share of both surfaces, by area, within `tolerance` mm of the other one.

    (area of the prediction's surface near the reference's + the reverse) / (area of both), Nikolov et al. 2018.
    Neither mask may be empty.
    """
    predicted_points, predicted_areas = surface_elements(prediction, spacing)
    reference_points, reference_areas = surface_elements(reference, spacing)
    limit = tolerance + 1e-9
    near_area = (
        predicted_areas[nearest_distances(predicted_points, reference_points) <= limit].sum()
        + reference_areas[nearest_distances(reference_points, predicted_points) <= limit].sum()
    )
    return float(near_area / (predicted_areas.sum() + reference_areas.sum()))


def hd95(prediction: Mask, reference: Mask, spacing: tuple[float, ...]) -> float:
    """95 % Hausdorff distance in mm: the larger of the two directed 95th percentiles between border voxels.

    Huttenlocher et al., IEEE PAMI 15 (1993), with the percentile in place of the maximum; numbers between two
    neighbours are interpolated. Neither mask may be empty.
    """
    predicted_points, reference_points = border_voxels(prediction, spacing), border_voxels(reference, spacing)
    return float(
        max(
            np.percentile(nearest_distances(predicted_points, reference_points), 95),
            np.percentile(nearest_distances(reference_points, predicted_points), 95),
        )
    )
