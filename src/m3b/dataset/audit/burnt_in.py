"""Check of some pictures for burnt-in text that looks like identity; without the extra `ocr` nothing is looked for."""

from __future__ import annotations

import time
from collections.abc import Iterator

from m3b.data.records import plain
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding
from m3b.dataset.audit.probes import unit_keys
from m3b.dataset.pixel_text import MIN_SIDE_PX, Identity, find_pixel_texts, is_ocr_installed, to_text_picture
from m3b.errors import DataError

MAX_SEARCHED, MAX_SECONDS = 12, 15.0
"""Images that are searched, spread over the index, and the time after which no other one is begun."""


class IdentityInPixels(AuditCheck):
    """Names, dates and record numbers in the pixels, where nothing masks them."""

    code = "identity_in_pixels"
    needs_images = True

    def find(self, data: AuditData) -> Iterator[Finding]:
        if not is_ocr_installed():
            return
        kinds: dict[str, set[Identity]] = {}
        searched, end = 0, time.monotonic() + MAX_SECONDS
        for key in _choose_images(data):
            if time.monotonic() > end:
                break
            identities = _find_identities(data, key)
            searched += identities is not None
            if identities:
                kinds[key] = identities
        if kinds:
            words = {"name": "names", "date": "dates", "number": "record numbers"}
            found_kinds = [word for kind, word in words.items() if any(kind in values for values in kinds.values())]
            yield self.make_finding(
                f"{len(kinds)} of {searched} images that were searched show text that looks like {', '.join(found_kinds)} of "
                "persons. Nothing masks it there, and a model may learn from it: look at some, and have it removed.",
                data.shorten_all(kinds),
            )


def _choose_images(data: AuditData) -> list[str]:
    large = [key for key, probe in data.readable_images.items() if min(probe.size[1:3], default=0) >= MIN_SIDE_PX]
    count = min(MAX_SEARCHED, len(large))
    return [large[position * len(large) // count] for position in range(count)]


def _find_identities(data: AuditData, key: str) -> set[Identity] | None:
    """Return what of persons the text in an image looks like; None if the image does not open again."""
    from m3b.dataset.reading import read_overview

    record = data.owners[key]
    keys = unit_keys(record, data.index.task)
    image = record.image if keys == (key,) else record.images[keys.index(key)]
    try:
        picture = to_text_picture(read_overview(plain(image), str(data.work)).array)
    except DataError:
        return None
    return {text.identity for text in find_pixel_texts(picture) if text.identity}


CHECKS: tuple[AuditCheck, ...] = (IdentityInPixels(),)
