"""The environment of every command, for all backends: variables, system folders, interpreter, devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from m3b.errors import SandboxError
from m3b.isolation.sandbox import bundle
from m3b.isolation.sandbox.cpu_quota import read_cpu_quota

SYSTEM_FOLDERS = ("/usr", "/nix/store", "/gnu/store", "/run/opengl-driver")
ETC_FILES = (
    "alternatives",
    "fonts",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "ssl",
    "vulkan",
)
_GPU_NODES = ("nvidia*", "kfd", "dri", "dxg")
INTERRUPT_FILE, INTERRUPT_VARIABLE = "interrupt-requested", "M3B_INTERRUPT_FILE"
"""File in the private folder of a command that asks it to write a checkpoint and to end; the variable has its path."""
# The choice of accelerators is the only setting inherited from the caller: it is no secret, and ignoring it would
# overload a shared machine.
_DEVICE_CHOICE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def command_environment(home: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command: a fixed list plus `extra`, never that of the caller."""
    cpus = str(count_threads())
    result = {
        "PATH": f"{Path(sandboxed_python()).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "USER": "m3b",  # otherwise getpass fails for users that are not in /etc/passwd
        "LOGNAME": "m3b",
        "OMP_NUM_THREADS": cpus,
        "MKL_NUM_THREADS": cpus,
        "OPENBLAS_NUM_THREADS": cpus,
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": f"{home}/matplotlib",
        "XDG_CACHE_HOME": f"{home}/cache",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        INTERRUPT_VARIABLE: f"{home}/{INTERRUPT_FILE}",
    }
    if sys.prefix != sys.base_prefix:
        result["VIRTUAL_ENV"] = sys.prefix
    result.update({name: os.environ[name] for name in _DEVICE_CHOICE if name in os.environ})
    return {**result, **extra}


def count_usable_cpus() -> int:
    """Return the number of processors that this process may use, from its CPU affinity and its cgroup quota."""
    affinity, cgroup_quota = len(os.sched_getaffinity(0)), read_cpu_quota()
    return affinity if cgroup_quota is None else max(1, min(affinity, int(cgroup_quota)))


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return sum(1 for device in Path("/dev").glob("nvidia*") if device.name.removeprefix("nvidia").isdecimal())


def count_threads() -> int:
    """Return the number of compute threads of a command: one per processor, or fewer if OMP_NUM_THREADS says so."""
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(count_usable_cpus(), int(requested))) if requested.isdecimal() else count_usable_cpus()


def sandboxed_python() -> str:
    """Return the path of this interpreter, such that all its folders exist inside a sandbox too.

    Called as `../.venv/bin/python`, Python keeps the `..` in its path, and no sandbox mounts the folder before it.
    """
    python = Path(sys.executable)
    return str(python.parent.resolve() / python.name) if ".." in python.parts else sys.executable


SOURCE_FOLDER = Path(__file__).resolve().parents[3]
"""The folder that Python finds m3b in: `site-packages`, or `src` of a checkout, which has nothing else."""


def launcher_python() -> str:
    """Return the interpreter that runs the supervisor and the launcher, links resolved."""
    return os.path.realpath(sys.executable)


def interpreter_folders() -> list[Path]:
    """Return the folders that Python needs: the virtual environment, the installation that it is based on, and m3b.

    Training projects import `m3b.training`; an editable installation of m3b lies outside of the environment.

    Raises SandboxError if this user cannot read one of them: Python would silently use parts of another installation.
    """
    folders = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)]
    if not SOURCE_FOLDER.is_relative_to(sys.prefix):
        folders.append(SOURCE_FOLDER)
    python = Path(launcher_python())
    if not any(python.is_relative_to(f) for f in folders) and not python.is_relative_to("/usr"):
        folders.append(python.parent.parent if python.parent.name == "bin" else python)
    unique: list[Path] = []
    for folder in folders:
        for path in (folder, folder.resolve()):  # scripts may refer to the installation by a link
            if not os.access(path, os.R_OK | os.X_OK):
                raise SandboxError(
                    f"this user cannot read {path}, which Python ({sys.executable}) needs; use a Python that is "
                    "installed where every user can read it"
                )
            if path not in unique and not path.is_relative_to("/usr"):
                unique.append(path)
    return unique


def bootstrap_command(module: str) -> list[str]:
    """Return the command that runs `guard.<module>` in a bare interpreter with `bundle.bundle_descriptor()`."""
    return [launcher_python(), "-I", "-S", "-c", bundle.bootstrap_code(module)]


def system_files() -> list[Path]:
    """Return the system folders and the few files of /etc that programs need, if they exist."""
    candidates = [Path(p) for p in SYSTEM_FOLDERS] + [Path("/etc") / name for name in ETC_FILES]
    return [p for p in candidates if p.exists()]


def gpu_nodes() -> list[Path]:
    """Return the device files and folders of the accelerators of this machine."""
    return sorted(node for pattern in _GPU_NODES for node in Path("/dev").glob(pattern))
