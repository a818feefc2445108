"""Several images of a case on one grid, written as one image with channels in a stated order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from m3b.data.reading import read_image, shared
from m3b.data.spec.labels import LeaveOut
from m3b.data.survey.kinds import cut
from m3b.errors import DataError

PLACE = "Datapath/images"


def stacked(root: Path, references: Sequence[str], work: Path) -> str:
    """Write the channels of one case below `work`: NIfTI with a fourth axis for volumes, NPY (C, H, W) for pictures.

    The file has the path of the first channel below `Datapath/images`.

    Returns:
        The path below `work`.

    Raises:
        LeaveOut: a channel does not open, or they lie on different grids.
    """
    import numpy as np

    try:
        images = [read_image(reference, str(root)) for reference in references]
    except DataError as error:
        raise LeaveOut("one of its sequences does not open") from error
    if len({image.array.shape[1:] for image in images}) > 1:
        raise LeaveOut("its sequences lie on different grids")
    named = work / PLACE / cut(references[0].replace("#", "/"))[0]
    named.parent.mkdir(parents=True, exist_ok=True)
    array = np.concatenate([image.array for image in images]).astype(np.float32)
    if images[0].dims == 2:
        file = named.with_name(f"{named.name}.npy")
        np.save(file, array)
        return file.relative_to(work).as_posix()
    return (
        _volume(array, str(root / references[0]), named.with_name(f"{named.name}.nii.gz")).relative_to(work).as_posix()
    )


def _volume(array: object, like: str, file: Path) -> Path:
    """(C, rows, columns, slices) as a NIfTI whose geometry is that of the first channel after it was turned to LPS."""
    import nibabel as nib
    import numpy as np

    from m3b.data.reading import geometry

    grid = geometry(like)
    affine = grid.affine if grid.affine is not None else np.diag([*(grid.spacing or (1.0, 1.0, 1.0)), 1.0])
    ras = shared().geometry.RAS_TO_LPS @ affine
    header = nib.Nifti1Header()
    header.set_data_dtype(np.float32)
    nib.save(nib.Nifti1Image(np.moveaxis(np.asarray(array), 0, -1), ras, header), file)
    return file
