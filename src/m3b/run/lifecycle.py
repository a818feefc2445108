"""A run begun, worked to its end, whatever that is, and the end written down."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from m3b.errors import Cancelled, DataError, Failed, LLMError, RunEnd, SandboxError, Status
from m3b.events import RunEnded, RunStarted
from m3b.llm import LLM
from m3b.llm.base import spec_of
from m3b.run.context import RunContext
from m3b.run.folder import Run
from m3b.run.journal import FORMAT
from m3b.run.options import Options
from m3b.run.orchestrator import work
from m3b.run.packaging import Delivered, versions
from m3b.run.result import FINAL, Result
from m3b.run.state import History
from m3b.sandbox import Sandbox
from m3b.workspace import Workspace

Open = Callable[[History], RunContext]
"""Makes the context of a run whose state is known."""


def execute(run: Run, record: dict[str, Any], open_context: Open) -> Result:
    """Work on a run to its end, and leave run.json and the report behind.

    Args:
        record: what run.json holds; see `new_record`.
        open_context: called once the journal is read.

    Raises:
        WrongUse: the journal cannot be read.
    """
    state, started = History.of(run.events()), time.monotonic()
    context = None
    result = _result(record, state, "failed", f"m3b itself failed; `{run.command('resume')}` goes on.")
    try:
        record.update(status="working", reason="", result=None, format=FORMAT)
        run.save(record)
        context = open_context(state)
        context.emit(RunStarted(record["request"], run.id, record["sandbox"]))
        result = _with_model(record, state, run, work(context))
    except (KeyboardInterrupt, Cancelled):
        told = f"Stopped on request. Everything made so far is kept; `{run.command('resume')}` goes on."
        result = _result(record, state, "cancelled", told)
    except RunEnd as end:
        result = _result(record, state, end.status, str(end))
    except (LLMError, SandboxError) as error:
        result = _result(record, state, "failed", str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        reason = f"The system refused: {error.strerror or error}{where}. Mend that, then `{run.command('resume')}`."
        result = _result(record, state, "failed", reason)
    finally:
        result = _finish(run, record, result, context, state.seconds + time.monotonic() - started)
    return result


def _finish(run: Run, record: dict[str, Any], result: Result, context: RunContext | None, wall_s: float) -> Result:
    """Stop what still runs, then write the end down. A full disk or an impatient Ctrl-C must not hide the result."""
    result.usage["wall_s"] = round(wall_s, 1)
    if context is not None:
        context.role = ""
        context.tools.close()
        with contextlib.suppress(OSError, DataError):
            context.leave(resumable=result.status not in FINAL)
    with contextlib.suppress(OSError, Failed):
        record.update(status=result.status, reason=result.reason, result=result.to_json(), ended=time.time())
        run.save(record)
        from m3b.report import write_report

        result = replace(result, report=str(write_report(run.folder)))
        record["result"] = result.to_json()
        run.save(record)
    if context is not None:
        with contextlib.suppress(Failed):
            context.emit(RunEnded(result.to_json()))
        context.close()
    return result


def _result(record: Mapping[str, Any], state: History, status: Status, reason: str) -> Result:
    selection, index, usage = state.selection, state.index, state.usage
    return Result(
        status=status,
        reason=reason,
        request=record["request"],
        task=selection.task if selection else "",
        data_card=selection.card if selection else "",
        usage={
            "actions": state.actions,
            "iterations": state.iterations,
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cached_share": round(usage.cached_share, 4),
            "cost_usd": round(usage.cost_usd, 6),
        },
        roles=state.roles_json(),
        run_dir=record["run_dir"],
        patients_known=index.patients_known if index else None,
        grouped_by=index.grouped_by if index else "",
    )


def _with_model(record: Mapping[str, Any], state: History, run: Run, made: Delivered) -> Result:
    status: Status = "completed" if made.ok else "below_range" if made.integrity == "clean" else "failed"
    return replace(
        _result(record, state, status, made.reason),
        primary=made.scores.primary,
        acceptable=made.acceptable,
        metrics=made.metrics(),
        integrity=made.integrity,
        model_dir=str(run.model),
        patients=made.scores.n_patients if made.scores.patients_known else None,
    )


def new_record(
    run: Run, request: str, options: Options, llms: Mapping[str, LLM], workspace: Workspace, sandbox: Sandbox
) -> dict[str, Any]:
    """What run.json holds when a run begins."""
    cards = [
        {"name": c.name, "description": c.description, "path": str(c.path) if c.path else None, "task": c.task,
         "modality": c.modality, "anatomy": c.anatomy, "dimension": c.dimension, "metric": c.metric,
         "acceptable": list(c.acceptable) if c.acceptable else None, "patient_key": c.patient_key,
         "classes": list(c.classes)}
        for c in workspace.cards.values() if c.own
    ]  # fmt: skip
    return {
        "format": FORMAT,
        "id": run.id,
        "request": request,
        "status": "working",
        "reason": "",
        "options": options.to_json(),
        "llm": {name: spec_of(llm) for name, llm in llms.items()},
        "data": cards,
        "sandbox": {"name": sandbox.name, "level": sandbox.level},
        "versions": versions(),
        "seed": options.seed,
        "started": time.time(),
        "run_dir": str(run.folder),
    }
