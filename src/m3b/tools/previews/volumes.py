"""NIfTI, MGH, NRRD and MetaImage volumes: shape, spacing, orientation, type, intensities, labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from m3b.data.phi import Phi
from m3b.data.reading import shared
from m3b.errors import ToolError
from m3b.facts import VolumeSummary
from m3b.tools.previews.lines import Lines
from m3b.tools.previews.numbers import LOOKED_AT, describe, shape

_UNPACKED = 2**31
"""Bytes of voxels from which on a compressed file is looked at from its start only."""
_NIBABEL = (".nii", ".nii.gz", ".mgz", ".hdr", ".img")


def preview(path: Path, phi: Phi) -> Lines:
    """Lines about a volume; of more than 64 MiB of voxels, evenly spread slices are looked at."""
    try:
        shared().check_header(str(path))
    except shared().ImageError as error:
        raise ToolError(str(error).replace(f"{path.parent}/", "")) from None
    name = path.name.lower()
    if name.endswith((".mha", ".mhd", ".nrrd", ".nhdr")):
        return _itk(path)
    return _nibabel(path)


def _nibabel(path: Path) -> Lines:
    import nibabel
    import numpy as np

    image: Any = nibabel.load(path)
    header = image.header
    zooms = tuple(float(one) for one in header.get_zooms())
    axes = "".join(code or "?" for code in nibabel.aff2axcodes(image.affine))
    units = header.get_xyzt_units()[0] if hasattr(header, "get_xyzt_units") else "mm"
    dims = image.shape
    lines = [
        f"{type(image).__name__.replace('Image', '')} volume, {shape(dims)} voxels, spacing {_spacing(zooms)} "
        f"{units if units != 'unknown' else 'mm (unit not stated)'}, orientation {axes}, {header.get_data_dtype()}"
    ]
    if len(dims) > 3:
        lines.append(f"{len(dims)} dimensions: the last ones are time or channels")
    cells = int(np.prod(dims, dtype=np.int64)) * header.get_data_dtype().itemsize
    far = cells > _UNPACKED and path.name.lower().endswith((".gz", ".mgz"))
    data, note = _slices(image.dataobj, dims, cells, first=far)
    lines.append(f"{describe(np.asarray(data))}{note}")
    slope, inter = (header.get_slope_inter() if hasattr(header, "get_slope_inter") else (None, None)) or (None, None)
    if slope not in (None, 1.0) or inter not in (None, 0.0):
        lines.append(f"stored values are scaled by {slope} and shifted by {inter}; the range is of scaled values")
    if hasattr(header, "get_sform") and not (int(header["qform_code"]) or int(header["sform_code"])):
        lines.append("no orientation is stated in the header (qform and sform code 0)")
    shape_ = tuple(int(one) for one in dims)
    return Lines(lines, VolumeSummary(shape=shape_, spacing=zooms, dtype=str(header.get_data_dtype())))


def _slices(source: Any, dims: tuple[int, ...], cells: int, *, first: bool) -> tuple[Any, str]:
    """All voxels, or slices spread evenly along the third axis, or the `first` ones, so that little is unpacked."""
    import numpy as np

    if cells <= LOOKED_AT or len(dims) < 3 or dims[2] < 2:
        return source, ""
    if dims[0] * dims[1] * (cells // max(int(np.prod(dims, dtype=np.int64)), 1)) > 4 * LOOKED_AT:
        raise ToolError("a single slice is too large to be looked at; use a script")
    count = min(max(int(dims[2] * LOOKED_AT / cells), 1), 24)
    chosen = np.arange(count) if first else np.linspace(0, dims[2] - 1, count).round().astype(int)
    picked = [np.asarray(source[(slice(None), slice(None), int(z)) + (0,) * (len(dims) - 3)]) for z in chosen]
    return np.stack(picked), f" (of {len(picked)} slices of {dims[2]})"


def _itk(path: Path) -> Lines:
    import SimpleITK

    reader = SimpleITK.ImageFileReader()
    reader.SetImageIO(shared().formats.itk_reader(str(path)))
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    dims, spacing = reader.GetSize(), reader.GetSpacing()
    direction = reader.GetDirection()
    axes = ""
    if len(dims) == 3:
        filter_ = SimpleITK.DICOMOrientImageFilter()
        axes = ", orientation " + filter_.GetOrientationFromDirectionCosines(direction) + " (DICOM axes)"
    pixel = SimpleITK.GetPixelIDValueAsString(reader.GetPixelID())
    channels = reader.GetNumberOfComponents()
    more = f", {channels} channels" if channels > 1 else ""
    lines = [f"volume, {shape(dims)} voxels (x, y, z), spacing {_spacing(spacing)} mm{axes}, {pixel}{more}"]
    cells = channels * 4
    for one in dims:
        cells *= int(one)
    note = ""
    if cells > 4 * LOOKED_AT and len(dims) == 3:
        depth = max(int(dims[2] * LOOKED_AT / cells), 1)
        start = (dims[2] - depth) // 2
        reader.SetExtractIndex([0, 0, start])
        reader.SetExtractSize([dims[0], dims[1], depth])
        note = f" (of slices {start} to {start + depth - 1} of {dims[2]})"
    image = reader.Execute()  # kept by name: the view below does not keep it alive
    lines.append(f"{describe(SimpleITK.GetArrayViewFromImage(image))}{note}")
    return Lines(lines, VolumeSummary(shape=tuple(dims), spacing=tuple(spacing), dtype=pixel))


def _spacing(values: Any) -> str:
    return " x ".join(f"{float(one):.4g}" for one in values)
