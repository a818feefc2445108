"""A share of a machine's processors, as containers and batch systems give it, is what commands compute with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.isolation.sandbox import environment
from m3b.isolation.sandbox.cpu_quota import read_cpu_quota
from m3b.run import sandbox_executor


def lay(place: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """What /proc/self/cgroup and /sys/fs/cgroup hold."""
    (place / "cgroup").write_text(groups)
    for name, text in files.items():
        file = place / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return place / "cgroup", place / "root"


@pytest.mark.parametrize(
    ("groups", "files", "share"),
    [
        ("0::/\n", {"cpu.max": "400000 100000\n"}, 4.0),  # docker run --cpus=4
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),  # a group above is tighter
        ("0::/a\n", {"a/cpu.max": "50000 100000\n", "cpu.max": "max 100000\n"}, 0.5),
        ("0::/../../pod/x\n", {"cpu.max": "200000 100000\n"}, 2.0),  # a group outside of what is mounted
        ("4:cpu,cpuacct:/x\n", {"cpu,cpuacct/x/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"}, 3.0),
        ("4:cpuacct,cpu:/x\n", {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("4:cpuset:/x\n0::/\n", {"cpuset/x/cpu.cfs_quota_us": "1\n"}, None),
        ("nonsense", {"cpu.max": "100000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "100000 0\n"}, None),
        ("0::/\n", {"cpu.max": "many few more\n"}, None),
    ],
)  # fmt: skip
def test_the_tightest_group_counts(tmp_path: Path, groups: str, files: dict[str, str], share: float | None) -> None:
    assert read_cpu_quota(*lay(tmp_path, groups, files)) == share


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert read_cpu_quota(tmp_path / "absent", tmp_path) is None


@given(groups=st.text(max_size=60), text=st.text(max_size=20))
def test_what_no_kernel_writes_is_no_limit_and_no_error(
    tmp_path_factory: pytest.TempPathFactory, groups: str, text: str
) -> None:
    place = tmp_path_factory.mktemp("groups")
    (place / "cpu.max").write_text(text, encoding="utf-8")
    (place / "cgroup").write_text(groups, encoding="utf-8")
    quota = read_cpu_quota(place / "cgroup", place)
    assert quota is None or quota > 0


@pytest.mark.parametrize(("share", "cpus"), [(None, 8), (64.0, 8), (4.0, 4), (2.5, 2), (0.5, 1)])
def test_commands_and_agents_are_told_of_the_share(
    monkeypatch: pytest.MonkeyPatch, share: float | None, cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(environment, "read_cpu_quota", lambda: share)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert environment.command_environment("/tmp", {})["OMP_NUM_THREADS"] == str(cpus)
    assert f"{cpus} CPU core" in sandbox_executor.describe_device()
