"""Registry of the data sets: name -> module; a module is imported when its data set is requested."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.bench.datasets.definitions import DatasetSpec

MODULE_BY_NAME = {
    "ADNI": "adni",
    "KneeMRI": "kneemri",
    "CC-CCII": "ccccii",
    "CT-Kidney": "ctkidney",
    "BTCV": "btcv",
    "VerSe": "verse",
    "OASIS": "oasis",
    "COVID19": "covid19",
    "INSTANCE22": "instance22",
    "MSD-Pancreas": "pancreas",
    "ChestX-Det10": "chestxdet",
    "CT-RATE": "ctrate",
    "RadGenome-BrainMRI": "radgenome",
    "IU-Xray": "iuxray",
}
"""Name on the data card -> module of this package, in the paper's order: diagnosis, organs, anomalies, reports."""

DATASET_NAMES = tuple(MODULE_BY_NAME)


def get_dataset(name: str) -> DatasetSpec:
    """Return the data set of a name; case and punctuation do not matter (`ct-kidney`, `ctkidney`).

    Raises:
        UsageError: there is no such data set; the message lists all names.
    """
    from m3b.data.cards import slug

    module_by_slug = {slug(dataset_name).replace("-", ""): module for dataset_name, module in MODULE_BY_NAME.items()}
    module = module_by_slug.get(slug(name).replace("-", ""))
    if module is None:
        raise UsageError(f"There is no data set {name!r} in M3Bench; choose one of {', '.join(DATASET_NAMES)}.")
    spec: DatasetSpec = importlib.import_module(f"m3b.bench.datasets.{module}").SPEC
    return spec
