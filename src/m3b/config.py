"""The configuration file of a user: `m3b.toml` in the current folder, then in `$XDG_CONFIG_HOME/m3b/`.

Options of a command win over both. The files hold no keys of providers.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import UsageError

NAME = "m3b.toml"
MAX_BYTES = 64 << 10
KEYS: Mapping[str, tuple[type[Any], str]] = {
    "llm": (str, "the language model of runs: provider:model, a provider alone, or rules"),
    "max_cost": (float, "US dollars that a run may cost"),
    "max_actions": (int, "tool calls of a run"),
    "max_tokens": (int, "tokens of a run"),
    "max_wall": (float, "minutes of a whole run"),
    "train_minutes": (float, "minutes of training"),
    "device": (str, "auto, cpu or cuda"),
    "gpus": (int, "number of GPUs to train on"),
    "engine": (str, "where scripts of training run: local, slurm or ray"),
    "partition": (str, "partition of cluster jobs"),
    "cpus": (int, "cores of a cluster job"),
    "memory": (float, "GiB of a cluster job"),
    "slurm_options": (str, "further options of sbatch, separated by blanks: account=radiology qos=long"),
    "offline": (bool, "whether models on other machines are refused"),
}
"""Name -> type and meaning of each setting, in the units of the command line."""
_SECRET = re.compile(r"\b(?:sk|gsk|xai|hf|AIza|key)[-_]?[A-Za-z0-9_-]{16,}|//[^/\s]*@")
"""Texts that look like a key or a password of an address."""


@dataclass(frozen=True)
class Config:
    """The settings of all files.

    Args:
        values: name -> value.
        sources: name -> the file that holds it.
        warnings: which files or settings were not used, and why.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def get(self, name: str) -> Any:
        """Return the value of a setting; None if no file has it."""
        return self.values.get(name)


def user_file() -> Path:
    """Return the path of the user's own file, which need not exist."""
    root = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (root if root.is_absolute() else Path.home() / ".config") / "m3b" / NAME


def folder_file() -> Path:
    """Return the path of the file of the current folder, which need not exist."""
    return Path.cwd() / NAME


def read_config(data_folders: Iterable[Path] = ()) -> Config:
    """Return the settings of both files; those of the current folder win.

    Args:
        data_folders: folders with data. A file that lies inside one came with the data and is not used.

    Raises:
        UsageError: a file is no TOML, or holds a setting that does not exist or has another type.
    """
    values: dict[str, Any] = {}
    sources: dict[str, Path] = {}
    warnings: list[str] = []
    roots = [Path(os.path.realpath(folder)) for folder in data_folders]
    for file in (user_file(), folder_file()):
        if not file.is_file():
            continue
        if reason := _explain_distrust(file, roots if file == folder_file() else []):
            warnings.append(f"{file} is not used: {reason}.")
            continue
        for name, value in parse_file(file).items():
            values[name], sources[name] = value, file
    return Config(values, sources, tuple(warnings))


def _explain_distrust(file: Path, data_folders: Iterable[Path]) -> str:
    """Return why a file is not used; '' if it is."""
    if any(Path(os.path.realpath(file)).is_relative_to(folder) for folder in data_folders):
        return "it lies inside the data"
    status = file.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    if status.st_mode & stat.S_IWOTH:
        return f"everybody may write to it; `chmod o-w {file}` fixes that"
    return ""


def parse_file(file: Path) -> dict[str, Any]:
    """Return the settings of a file.

    Raises:
        UsageError: it cannot be read, or a setting is not valid.
    """
    try:
        raw = file.read_bytes()[:MAX_BYTES].decode("utf-8")
        values = tomllib.loads(raw)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{file} is no TOML: {error}.") from error
    return {name: check_value(name, value, str(file)) for name, value in values.items()}


def check_name(name: str, source: str = "") -> str:
    """Return the name of a setting as files hold it; blanks and hyphens are underscores.

    Raises:
        UsageError: there is no such setting.
    """
    normalized_name = name.strip().lower().replace("-", "_")
    if normalized_name not in KEYS:
        known_names = [key.replace("_", "-") for key in KEYS]
        matches = difflib.get_close_matches(name.replace("_", "-"), known_names, 1)
        hint = f" Did you mean {matches[0]}?" if matches else ""
        prefix = f"{source}: " if source else ""
        raise UsageError(f"{prefix}there is no setting {name!r}.{hint} Settings: {', '.join(known_names)}.")
    return normalized_name


def check_value(name: str, value: Any, source: str = "") -> Any:
    """Return the value of a setting, if its name and type are valid and it holds no secret.

    Raises:
        UsageError: it is not valid.
    """
    kind, _ = KEYS[check_name(name, source)]
    prefix = f"{source}: " if source else ""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        names = {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}
        raise UsageError(f"{prefix}{name} must be {names[kind]}; it is {value!r}.")
    if isinstance(value, str) and _SECRET.search(value):
        raise UsageError(
            f"{prefix}{name} looks like a key or a password. Keys stay in the environment (docs/llm.md); "
            "the configuration names the model only."
        )
    return value


def parse_value(name: str, text: str) -> Any:
    """Return the value of a setting from the command line.

    Raises:
        UsageError: the text is no value of this setting.
    """
    kind, _ = KEYS[check_name(name)]
    try:
        value = {"true": True, "yes": True, "false": False, "no": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        value = text
    return check_value(name, value)


def write_setting(file: Path, name: str, value: Any | None) -> None:
    """Set a value in a file, or remove it if the value is None; comments and other settings are kept."""
    import tomlkit

    document = tomlkit.parse(file.read_text(encoding="utf-8")) if file.is_file() else tomlkit.document()
    if value is None:
        document.pop(name, None)
    else:
        document[name] = value
    file.parent.mkdir(parents=True, exist_ok=True)
    from m3b.writing import write_text_atomically

    write_text_atomically(file, tomlkit.dumps(document))
