"""Where the openly downloadable sets lie. Only addresses that public code or the publisher's own pages confirm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file to download.

    Args:
        into: folder below the data set's own in which an archive is unpacked, or a plain file is put.
        checksum: `md5:...` or `sha256:...`; empty where nobody published one.
    """

    url: str
    into: str = ""
    checksum: str = ""

    @property
    def file(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]


VERSE = "https://s3.bonescreen.de/public/VerSe-complete"
ZENODO_COVID = "https://zenodo.org/records/3757476/files"
DEEPWISE = "http://resource.deepwise.com/xraychallenge"
DET10 = "https://raw.githubusercontent.com/Deepwise-AILab/ChestX-Det10-Dataset/HEAD"
OPENI = "https://openi.nlm.nih.gov/imgs/collections"

SOURCES: dict[str, tuple[RemoteFile, ...]] = {
    "KneeMRI": (RemoteFile("https://zenodo.org/records/14789903/files/volumetric_data.7z"),),
    "VerSe": tuple(
        RemoteFile(f"{VERSE}/dataset-verse{year}{part}.zip")
        for year in (19, 20)
        for part in ("training", "validation", "test")
    ),
    "COVID19": (
        RemoteFile(
            f"{ZENODO_COVID}/COVID-19-CT-Seg_20cases.zip",
            "COVID-19-CT-Seg_20cases",
            "sha256:a5060480eff9315b069b086312dac4872777901fb80d268a5a83edd9f4e7b440",
        ),
        RemoteFile(
            f"{ZENODO_COVID}/Lung_and_Infection_Mask.zip",
            "Lung_and_Infection_Mask",
            "sha256:34f5a573cb8fb53cb15abe81868395d9addf436854826a6fd6e70c2b294f19c3",
        ),
        RemoteFile(
            f"{ZENODO_COVID}/Lung_Mask.zip",
            "Lung_Mask",
            "sha256:f060b0d0299939a6d95ddefdbfa281de1a779c4d230a5adbd32414711d6d8187",
        ),
        RemoteFile(
            f"{ZENODO_COVID}/Infection_Mask.zip",
            "Infection_Mask",
            "sha256:87901c73fdd2230260e61d2dbc57bf56026efc28264006b8ea2bf411453c1694",
        ),
    ),
    "MSD-Pancreas": (
        RemoteFile(
            "https://msd-for-monai.s3-us-west-2.amazonaws.com/Task07_Pancreas.tar",
            checksum="md5:4f7080cfca169fa8066d17ce6eb061e4",
        ),
    ),
    "ChestX-Det10": (
        RemoteFile(f"{DET10}/train.json"),
        RemoteFile(f"{DET10}/test.json"),
        RemoteFile(f"{DEEPWISE}/train_data.zip"),
        RemoteFile(f"{DEEPWISE}/test_data.zip"),
    ),
    "IU-Xray": (
        RemoteFile(f"{OPENI}/NLMCXR_reports.tgz"),
        RemoteFile(f"{OPENI}/NLMCXR_png.tgz", "NLMCXR_png"),
    ),
}

NOTES = {
    "KneeMRI": "Take metadata.csv from https://zenodo.org/records/14789903 as well, and unpack the .7z file with 7z.",
    "VerSe": "About 48 GB of archives. Should this server be down: the same data lie on OSF as nqjyw and t98fz.",
}
"""What a program cannot do, or what is worth knowing before."""
