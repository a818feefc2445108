"""Masks and pseudonyms are keyed by a random secret of the user, which no other machine or user has."""

from __future__ import annotations

import hashlib
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from m3b.data.phi import mask
from m3b.isolation.sandbox import choose_sandbox
from m3b.isolation.user_secret import KEY_FILE, purpose_key, state_folder
from m3b.messages import ToolCall
from m3b.tools import Roots, Toolbox

PRINTED = (
    "from m3b.agents.pseudonymization import Pseudonyms; from m3b.data.phi import mask; "
    "print(Pseudonyms().pseudonymize('Weber_Anna'), mask('Weber'))"
)


def printed(**env: str) -> str:
    return subprocess.run([sys.executable, "-c", PRINTED], env=env, capture_output=True, text=True, check=True).stdout


def test_the_same_in_every_process_of_a_user_and_different_without_the_secret(tmp_path: Path) -> None:
    first = printed(XDG_STATE_HOME=str(tmp_path / "a"))
    assert printed(XDG_STATE_HOME=str(tmp_path / "a")) == first
    assert printed(XDG_STATE_HOME=str(tmp_path / "b")) != first, "of the same host and user"
    secret = tmp_path / "a/m3b" / KEY_FILE
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_bytes()) == 32
    assert [file.name for file in secret.parent.iterdir()] == [KEY_FILE]


def test_without_a_home_the_secret_lasts_for_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len({printed(HOME=str(tmp_path / "file")) for _ in range(3)}) == 3
    assert purpose_key("masks") == purpose_key("masks")


@pytest.mark.parametrize("harm", ["readable", "link", "short"])
def test_a_secret_that_others_may_know_is_replaced(harm: str, own_state: Path) -> None:
    folder = state_folder()
    folder.mkdir(parents=True)
    (folder / KEY_FILE).write_bytes(b"k" * (5 if harm == "short" else 32))
    (folder / KEY_FILE).chmod(0o644 if harm == "readable" else 0o600)
    if harm == "link":
        (folder / KEY_FILE).rename(folder / "other")
        (folder / KEY_FILE).symlink_to(folder / "other")
    assert purpose_key("masks") != hashlib.blake2b(b"k" * 32, person=b"masks", digest_size=32).digest()
    assert stat.S_IMODE((folder / KEY_FILE).lstat().st_mode) == 0o600
    assert not (folder / KEY_FILE).is_symlink()
    expected = hashlib.blake2b((folder / KEY_FILE).read_bytes(), person=b"masks", digest_size=32).digest()
    assert purpose_key("masks") == expected


def test_the_reader_masks_as_m3b_does_and_never_has_the_key_of_pseudonyms(tmp_path: Path) -> None:
    work, data = tmp_path / "work", tmp_path / "data"
    work.mkdir()
    data.mkdir()
    (data / "a.csv").write_text("image,patient_name\n1.png,Jane Doe\n2.png,Jane Doe\n")
    with Toolbox(Roots(work, {"data/x": data}), sandbox=choose_sandbox()) as box:
        output = box.call(ToolCall("1", "read_files", {"paths": ["data/x/a.csv"]}), ("read_files",)).text
    assert mask("Jane Doe") in output
    assert purpose_key("masks") != purpose_key("pseudonyms")
