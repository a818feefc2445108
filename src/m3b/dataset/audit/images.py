"""Checks of single images: they open, are not blank, hold no text, and volumes are volumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from m3b.dataset.audit.base import MARKS, AuditCheck, AuditData, Finding
from m3b.dataset.audit.probes import ImageProbe, find_burnt_in_text

ANISOTROPIC = 3.0
MAX_CHANNELS = 8
MAX_MIDDLE_SLICES = 8
"""Slices of a volume up to which a model of pictures takes the middle one."""
VOLUME_TARGETS = (*MARKS, "states", "report", "")
"""Targets for which volumes are looked at."""


class NothingOpens(AuditCheck):
    """No image opens."""

    code = "nothing_opens"
    severity = "reject"

    def find(self, data: AuditData) -> Iterator[Finding]:
        if data.probes and not data.readable_images:
            error = next(iter(data.probes.values())).error
            yield self.make_finding(
                f"None of the {len(data.probes)} images opens. The first says: {error}", data.shorten_all(data.probes)
            )


class UnreadableImage(AuditCheck):
    """Images that do not open."""

    code = "unreadable"
    severity = "fix"
    needs_images = True
    remedy = "Leave them out."

    def find(self, data: AuditData) -> Iterator[Finding]:
        errors = {key: probe.error for key, probe in data.probes.items() if probe.error}
        if errors:
            yield self.make_finding(
                f"{len(errors)} of {len(data.index.records)} images do not open. The first says: "
                f"{next(iter(errors.values()))}",
                data.shorten_all(errors),
            )


class BlankImage(AuditCheck):
    """Images with a single value."""

    code = "blank"
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        blank = [key for key, probe in data.readable_images.items() if probe.flat]
        if blank:
            yield self.make_finding(
                f"{len(blank)} images have a single grey value throughout.", data.shorten_all(blank)
            )


class TextInPixels(AuditCheck):
    """Text in the pixels: nobody masks it there, and a network may learn from it who somebody is."""

    code = "text_in_pixels"
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        kinds = {key: find_burnt_in_text(probe.header) for key, probe in data.readable_images.items()}
        certain, likely = ([key for key, kind in kinds.items() if kind == name] for name in ("stated", "likely"))
        parts = [f"{len(certain)} say in their DICOM header that text is burnt into the pixels"] if certain else []
        parts += [f"{len(likely)} are of a kind that often has such text, and do not deny it"] if likely else []
        if parts:
            yield self.make_finding(
                f"Of {len(data.probes)} images opened, {' and '.join(parts)}. It may name patients, nothing masks it there, "
                "and a model may learn from it what it should learn from the image: look at some, and have it removed if it "
                "names anybody.",
                data.shorten_all(certain or likely),
            )


# --- volumes ------------------------------------------------------------------------------------------------------


def _get_volumes(data: AuditData) -> dict[str, ImageProbe]:
    return {key: probe for key, probe in data.readable_images.items() if len(probe.size) == 4}


class VolumeCheck(AuditCheck):
    """A check of volumes."""

    targets = VOLUME_TARGETS
    needs_images = True


class SingleSlice(VolumeCheck):
    """Pictures among volumes."""

    code = "one_slice"

    def find(self, data: AuditData) -> Iterator[Finding]:
        pictures = [key for key, probe in data.readable_images.items() if len(probe.size) != 4]
        if 0 < len(pictures) <= len(data.readable_images) / 2:
            yield self.make_finding(
                f"{len(pictures)} of {len(data.readable_images)} images have a single slice, the others are volumes. They are "
                "taken as volumes of one slice; leave them out if they are scouts or secondary captures.",
                data.shorten_all(pictures),
            )


class VolumesAmongPictures(AuditCheck):
    """Volumes or clips among pictures, which a model of pictures does not take."""

    code = "volumes_among_pictures"
    severity = "fix"
    remedy = "Leave them out, or take one frame of each: `images.frames` 1 of clips and animated pictures."
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        volumes = _get_volumes(data)
        deep = {key: probe.size[-1] for key, probe in volumes.items() if probe.size[-1] > MAX_MIDDLE_SLICES}
        if deep and len(volumes) < len(data.readable_images) / 2:
            yield self.make_finding(
                f"{len(deep)} of {len(data.readable_images)} images are volumes or clips of up to {max(deep.values())} slices, "
                "the others are pictures. A model of pictures takes none of them.",
                data.shorten_all(deep),
            )


class ThickSlices(VolumeCheck):
    """Voxels that are much longer than wide."""

    code = "anisotropic"

    def find(self, data: AuditData) -> Iterator[Finding]:
        volumes = _get_volumes(data)
        coarse = {
            key: probe.spacing
            for key, probe in volumes.items()
            if probe.spacing and min(probe.spacing) > 0 and max(probe.spacing) / min(probe.spacing) > ANISOTROPIC
        }
        if coarse:
            example = " x ".join(f"{size:.3g}" for size in next(iter(coarse.values())))
            yield self.make_finding(
                f"{len(coarse)} of {len(volumes)} volumes have voxels more than {ANISOTROPIC:g} times as long as wide, "
                f"e.g. {example} mm. Thin structures may be missed across slices.",
                data.shorten_all(coarse),
            )


class ChannelsDiffer(VolumeCheck):
    """Volumes with different numbers of unnamed channels."""

    code = "channels_differ"
    severity = "fix"
    remedy = "Name them one by one, `image_path: {name: path, ...}`, or leave these out."

    def find(self, data: AuditData) -> Iterator[Finding]:
        volumes = _get_volumes(data)
        amounts = Counter(probe.size[0] for probe in volumes.values())
        if data.index.channels or len(amounts) < 2:
            return
        usual = amounts.most_common(1)[0][0]
        unusual = [key for key, probe in volumes.items() if probe.size[0] != usual]
        table = ", ".join(f"{count} with {number}" for number, count in amounts.items())
        yield self.make_finding(
            f"{len(unusual)} of {len(volumes)} volumes hold another number of channels than the usual {usual} ({table}; 4D "
            "files are read as channels).",
            data.shorten_all(unusual),
        )


class TimeAsChannels(VolumeCheck):
    """A series over time whose moments would be taken for channels."""

    code = "time_as_channels"
    severity = "fix"
    remedy = "Write one volume of each (the mean, or one moment) to Datapath/images/ and index that."
    explained_by = ("channels_differ",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        volumes = _get_volumes(data)
        series = {key: probe.frames for key, probe in volumes.items() if probe.frames[0] > MAX_CHANNELS}
        if series and not data.index.channels:
            key, (frames, seconds) = next(iter(series.items()))
            yield self.make_finding(
                f"{len(series)} of {len(volumes)} files are series over time by their headers, e.g. {data.shorten(key)}: "
                f"{frames} volumes, {seconds:g} s apart. A model would take the moments for channels: make one volume of "
                "each first, or say which moment counts.",
                data.shorten_all(series),
            )


class FourAxes(VolumeCheck):
    """Files of four axes, which are read as channels."""

    code = "four_axes"
    explained_by = ("channels_differ", "time_as_channels")

    def find(self, data: AuditData) -> Iterator[Finding]:
        several = {key: probe.size[0] for key, probe in _get_volumes(data).items() if probe.size[0] > 1}
        if several and not data.index.channels:
            count = next(iter(several.values()))
            message = f"All {len(several)} files are 4D: {count} volumes each, which are read as channels."
            if count > MAX_CHANNELS:
                message += (
                    " If this is a series over time, write one volume of each to Datapath/images/ and index that."
                )
            yield self.make_finding(message, data.shorten_all(several))


CHECKS = (
    NothingOpens(), UnreadableImage(), BlankImage(), TextInPixels(), SingleSlice(), VolumesAmongPictures(), ChannelsDiffer(),
    TimeAsChannels(),
    FourAxes(), ThickSlices(),
)  # fmt: skip
