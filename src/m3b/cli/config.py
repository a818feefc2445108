"""`m3b config`: show, set and remove what the configuration file holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from m3b.cli.output import echo, print_json
from m3b.cli.run import JsonOption
from m3b.errors import UsageError


def config(
    name: Annotated[str, typer.Argument(help="A setting. Without it: all settings.")] = "",
    value: Annotated[str, typer.Argument(help="Its new value. Without it: the value is shown.")] = "",
    unset: Annotated[bool, typer.Option("--unset", help="Remove the setting.")] = False,
    in_folder: Annotated[
        bool, typer.Option("--here", help="Change m3b.toml in this folder instead of your own.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show, set or remove settings of m3b.toml, for instance the language model: m3b config llm PROVIDER.

    Options of a command win, then m3b.toml in the current folder, then your own. Keys of providers are not stored.
    """
    from m3b.config import KEYS, check_name, folder_file, parse_value, read_config, user_file, write_setting

    if not name:
        if unset:
            raise UsageError("--unset needs the name of a setting.")
        _print_all(as_json=json)
        return
    key = check_name(name)
    file = folder_file() if in_folder else user_file()
    if unset or value:
        if unset and value:
            raise UsageError("Give a value or --unset, not both.")
        write_setting(file, key, None if unset else _check_meaning(key, parse_value(key, value)))
    settings = read_config()
    if json:
        print_json({"name": key, "value": settings.get(key), "file": str(settings.sources.get(key, ""))})
        return
    for warning in settings.warnings:
        echo(warning, err=True)
    current = settings.get(key)
    if current is None:
        echo(f"{key} is not set: {KEYS[key][1]}.")
        return
    echo(f"{key} = {current} ({settings.sources[key]})")
    if (unset or value) and settings.sources[key] != file:
        echo(f"The {settings.sources[key]} of this folder wins over {file}.", err=True)


def _check_meaning(key: str, value: Any) -> Any:
    """Return a value if a run could use it: a provider that exists, a limit in its range, a device."""
    from m3b.run.options import Options
    from m3b.run.training_overrides import TrainingOverrides

    if key == "llm":
        from m3b.llm.registry import check_provider

        check_provider(str(value))
    elif key in TrainingOverrides.__dataclass_fields__:
        TrainingOverrides(**{key: value})
    else:
        Options(**{key: value * 60 if key == "max_wall" else value})
    return value


def _print_all(*, as_json: bool) -> None:
    from m3b.config import KEYS, folder_file, read_config, user_file

    settings = read_config()
    if as_json:
        print_json(
            {
                "values": dict(settings.values),
                "sources": {name: str(file) for name, file in settings.sources.items()},
                "files": [str(folder_file()), str(user_file())],
                "warnings": list(settings.warnings),
            }
        )
        return
    for warning in settings.warnings:
        echo(warning, err=True)
    width = max(map(len, KEYS))
    for name, (_, meaning) in KEYS.items():
        if name in settings.values:
            echo(f"{name:<{width}}  {settings.values[name]}  ({settings.sources[name]})")
        else:
            echo(f"{name:<{width}}  -  {meaning}")
    echo(f"files: {folder_file()}, {user_file()}")
