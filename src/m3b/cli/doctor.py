"""`m3b doctor`: what works on this machine."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from m3b.cli.output import echo, print_json
from m3b.cli.run import JsonOption

if TYPE_CHECKING:
    from m3b.isolation.sandbox.base import Probe


def doctor(json: JsonOption = False) -> None:
    """Show what works on this machine: sandbox, keys, training packages, device."""
    from m3b.engines.slurm import diagnose_slurm
    from m3b.errors import SandboxError
    from m3b.isolation.reader.self_test import probe_reader
    from m3b.isolation.sandbox import choose_sandbox, diagnose_sandboxes
    from m3b.isolation.sandbox.reach import list_open_threats
    from m3b.llm import choose_default_spec, find_provider_keys
    from m3b.llm.offline import OFFLINE_VARIABLE, is_offline
    from m3b.llm.specs import RULES
    from m3b.run.packaging import collect_versions
    from m3b.run.sandbox_executor import describe_device

    probes = diagnose_sandboxes()
    try:
        active_sandbox = choose_sandbox("auto")
        sandbox, level = active_sandbox.name, active_sandbox.level
    except SandboxError as error:
        sandbox, level = "none", str(error)
    reader_probe = probe_reader()
    probes = [*probes, reader_probe]
    package_versions = collect_versions()
    slurm_works, slurm_detail = diagnose_slurm()
    default_llm = RULES if is_offline() else choose_default_spec()
    missing_packages = [name for name in ("torch", "transformers", "monai") if name not in package_versions]
    status: dict[str, Any] = {
        "sandbox": {"active": sandbox, "level": level, "probes": [dataclasses.asdict(probe_result) for probe_result in probes],
                    "not_stopped": list_open_threats(sandbox)},
        "llm": default_llm,
        "offline": is_offline(),
        "keys": find_provider_keys(),
        "device": describe_device(),
        "engines": {"slurm": {"works": slurm_works, "detail": slurm_detail}},
        "versions": package_versions,
        "missing": missing_packages,
    }  # fmt: skip
    problems = _list_problems(sandbox, level, reader_probe, missing_packages)
    status["problems"] = problems
    if json:
        print_json(status)
        raise typer.Exit(1 if problems else 0)
    _print_answer(problems)
    reason = f" ({OFFLINE_VARIABLE} is set)" if is_offline() else _explain_default_llm(find_provider_keys())
    versions = ", ".join(f"{name} {version}" for name, version in package_versions.items())
    echo(f"sandbox: {sandbox}")
    echo(f"language model without --llm: {default_llm}{reason}")
    echo(f"device: {describe_device()}")
    _echo_wrapped("packages: ", versions)
    echo("\nDetails")
    for probe_result in probes:
        detail = probe_result.detail.removeprefix(f"{probe_result.name.partition(' ')[0]}: ")
        _echo_wrapped(f"  {'works' if probe_result.works else 'no':<5}  {probe_result.name}: ", detail)
    _echo_wrapped(f"  {'works' if slurm_works else 'no':<5}  slurm: ", slurm_detail)
    _echo_wrapped("  not stopped by any sandbox: ", "; ".join(list_open_threats(sandbox)))
    raise typer.Exit(1 if problems else 0)


def _list_problems(sandbox: str, level: str, reader_probe: Probe, missing_packages: Sequence[str]) -> list[str]:
    """Return what is missing for a run, each in a sentence with the remedy."""
    problems = []
    if sandbox == "none":
        problems.append(f"No sandbox works: {level}")
    elif not reader_probe.works:
        problems.append(f"The confined reader of data does not start: {reader_probe.detail}")
    if missing_packages:
        problems.append(f"Missing for training: {', '.join(missing_packages)}. Install them: pip install -e '.[train]'")
    return problems


def _print_answer(problems: Sequence[str]) -> None:
    if not problems:
        echo("Everything fine: m3b can read data, train and test models on this machine.\n")
        return
    echo("Not ready to train:")
    for problem in problems:
        _echo_wrapped("  - ", problem)
    echo("")


def _echo_wrapped(label: str, text: str) -> None:
    """Print a label with a text that is wrapped to the terminal, under the indent of the label."""
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    indent = " " * (len(label) - len(label.lstrip()) + 2)
    echo(
        textwrap.fill(f"{label}{text}", width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )


def _explain_default_llm(keys: dict[str, str]) -> str:
    """Return why the default model is taken, and which others could be used."""
    from m3b.config import read_config

    config = read_config()
    if config.get("llm"):
        return f" ({config.sources['llm']})"
    if not keys:
        return " (no provider's key is set)"
    variables_text = ", ".join(f"{variable} (m3b config llm {name})" for name, variable in keys.items())
    return f" (set but not named yet: {variables_text})"
