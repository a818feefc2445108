"""`m3b doctor`: what works on this machine."""

from __future__ import annotations

import dataclasses

import typer

from m3b.cli.output import echo, print_json
from m3b.cli.run import JsonOption


def doctor(json: JsonOption = False) -> None:
    """Show what works on this machine: sandbox, keys, training packages, device."""
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
    default_llm = RULES if is_offline() else choose_default_spec()
    missing_packages = [name for name in ("torch", "transformers", "monai") if name not in package_versions]
    status = {
        "sandbox": {"active": sandbox, "level": level, "probes": [dataclasses.asdict(probe_result) for probe_result in probes],
                    "not_stopped": list_open_threats(sandbox)},
        "llm": default_llm,
        "offline": is_offline(),
        "keys": find_provider_keys(),
        "device": describe_device(),
        "versions": package_versions,
        "missing": missing_packages,
    }  # fmt: skip
    if json:
        print_json(status)
    else:
        echo(f"sandbox: {sandbox}\n  {level}")
        for probe_result in probes:
            echo(f"  {'yes' if probe_result.works else 'no ':<3}  {probe_result.name}: {probe_result.detail}")
        for open_attack in list_open_threats(sandbox):
            echo(f"  not stopped: {open_attack}")
        reason = f" ({OFFLINE_VARIABLE} is set)" if is_offline() else _explain_default_llm(find_provider_keys())
        echo(f"language model without --llm: {default_llm}{reason}")
        echo(f"device: {describe_device()}")
        echo("packages: " + ", ".join(f"{name} {version}" for name, version in package_versions.items()))
        if missing_packages:
            echo(f"missing for training: {', '.join(missing_packages)}; install m3b[train]")
    raise typer.Exit(1 if sandbox == "none" or missing_packages or not reader_probe.works else 0)


def _explain_default_llm(keys: dict[str, str]) -> str:
    """Return why the default model is taken, and which others could be used."""
    if not keys:
        return " (no provider's key is set)"
    (first_key, *other_keys) = keys.items()
    other_keys_text = ", ".join(f"{variable} (--llm {name})" for name, variable in other_keys)
    return f" ({first_key[1]} is set{f'; also set: {other_keys_text}' if other_keys_text else ''})"
