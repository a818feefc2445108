"""Options on remote folders, for `m3b run`, `m3b look`, `m3b predict` and `m3b data mirror`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from m3b.cli.output import echo, show_transfer_progress
from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.remote.origin import MirroredFolder

HELP_PANEL = "Remote data"


@dataclass(frozen=True)
class MirrorOptions:
    """Where remote folders are mirrored to, and how much may be fetched."""

    mirror: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The store of mirrored folders. Default: $M3B_MIRROR, or ~/.cache/m3b/mirror.",
            rich_help_panel=HELP_PANEL,
            show_default=False,
        ),
    ] = None
    max_download_gib: Annotated[
        float | None,
        typer.Option(
            help="GiB that may be fetched of a remote folder. Default: $M3B_MAX_DOWNLOAD_GIB, or 50.",
            rich_help_panel=HELP_PANEL,
            show_default=False,
        ),
    ] = None

    def fetch(self, url: str, *, offline: bool = False) -> MirroredFolder:
        """Mirror a remote folder, with a progress bar on a terminal.

        Raises:
            UsageError: see `m3b.remote.mirror.mirror`; or the address is one of the memory of a process.
        """
        from m3b.llm.offline import is_offline
        from m3b.remote.addresses import parse_address
        from m3b.remote.mirror import mirror

        if parse_address(url).scheme == "memory":
            raise UsageError(
                f"{url}: memory:// names the memory of a Python process, and this command has an empty one. Use it in Python: "
                f"m3b.mirror({url!r})."
            )
        with show_transfer_progress() as progress:
            return mirror(
                url,
                store=self.mirror,
                max_download_gib=self.max_download_gib,
                offline=is_offline(offline),
                on_progress=progress,
            )

    def localize(self, path: str, *, offline: bool = False) -> str:
        """Return a path of this machine: of an address, the mirrored folder or file, and say so on standard error.

        `NAME=` before an address and `#ITEM` behind it are kept.
        """
        from m3b.remote.addresses import is_remote

        name, separator, address = path.partition("=")
        if not (separator and is_remote(address)):
            name, separator, address = "", "", path
        if not is_remote(address):
            return path
        address, hash_sign, item = address.partition("#")
        mirrored = self.fetch(address, offline=offline)
        echo(describe_mirroring(mirrored), err=True)
        return f"{name}{separator}{mirrored.path}{hash_sign}{item}"

    def fetch_sources(self, sources: Sequence[str], *, offline: bool = False) -> list[str | MirroredFolder]:
        """Return data sources, with mirrored folders instead of addresses."""
        from m3b.remote.addresses import is_remote

        return [self.fetch(source, offline=offline) if is_remote(source) else source for source in sources]


def describe_mirroring(mirrored: MirroredFolder) -> str:
    """Return what was mirrored, in a line for each remark."""
    fetched = f"{mirrored.n_fetched:,} files fetched, {mirrored.origin.n_files - mirrored.n_fetched:,} were there"
    return "\n".join([f"{mirrored.origin.describe()}: {fetched}", *mirrored.notes])


NO_MIRROR_OPTIONS = MirrorOptions()
