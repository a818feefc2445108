"""Running a session to its end, whatever that is, and writing the end down."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from m3b.errors import Cancelled, DataError, Failed, LLMError, RunEnd, SandboxError
from m3b.events import Event
from m3b.llm import LLM
from m3b.llm.base import spec_of
from m3b.run.folder import FORMAT, Run
from m3b.run.options import Options
from m3b.run.orchestrator import Session
from m3b.run.packaging import Delivered, versions
from m3b.run.result import FINAL, Result, Status
from m3b.run.state import History
from m3b.sandbox import Sandbox
from m3b.workspace import Workspace


def execute(
    run: Run, record: dict[str, Any], *, options: Options, on_event: Callable[[Event], None], **parts: Any
) -> Result:
    """Run a session to its end, whatever that is, and leave run.json and the report behind."""
    history = History.of(run.events())
    started = time.monotonic()
    result = None
    session = None
    try:
        record.update(status="working", reason="", result=None)
        run.save(record)
        session = Session(run, record["request"], options, history=history, on_event=on_event, **parts)
        session.emit("run_started", request=record["request"], id=run.id, sandbox=record["sandbox"])
        delivered = session.work()
        status = "completed" if delivered.ok else "below_range" if delivered.integrity == "clean" else "failed"
        result = _result(record, history, status, delivered.reason)
        result = _with_model(result, run, delivered)
    except KeyboardInterrupt:
        result = _result(record, history, Cancelled.status, _cancelled(run))
    except Cancelled:
        result = _result(record, history, Cancelled.status, _cancelled(run))
    except RunEnd as end:
        result = _result(record, history, end.status, str(end))
    except (LLMError, SandboxError) as error:
        result = _result(record, history, Failed.status, str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        reason = f"The system refused: {error.strerror or error}{where}. Mend that, then `{run.command('resume')}`."
        result = _result(record, history, Failed.status, reason)
    finally:
        if result is None:
            result = _result(record, history, Failed.status, f"m3b itself failed; `{run.command('resume')}` goes on.")
        result = _finish(run, record, result, session, history.seconds + time.monotonic() - started)
    return result


def _cancelled(run: Run) -> str:
    return f"Stopped on request. Everything made so far is kept; `{run.command('resume')}` goes on."


def _finish(run: Run, record: dict[str, Any], result: Result, session: Session | None, wall_s: float) -> Result:
    """Stop what still runs, then write the end down. A full disk or an impatient Ctrl-C must not hide the result."""
    result.usage["wall_s"] = round(wall_s, 1)
    if session is not None:
        session.role = ""
        session.tools.close()
        with contextlib.suppress(OSError, DataError):
            session.leave(resumable=result.status not in FINAL)
    with contextlib.suppress(OSError, Failed):
        record.update(status=result.status, reason=result.reason, result=result.to_json(), ended=time.time())
        run.save(record)
        from m3b.report import write_report

        report = write_report(run.folder)
        result = Result.from_json({**result.to_json(), "report": str(report)})
        record["result"] = result.to_json()
        run.save(record)
    if session is not None:
        with contextlib.suppress(Failed):
            session.emit("run_ended", **result.to_json())
        session.close()
    return result


def _result(record: Mapping[str, Any], history: History, status: str, reason: str) -> Result:
    selection, index = history.artifacts.get("selection"), history.artifacts.get("index")
    return Result(
        status=cast(Status, status),
        reason=reason,
        request=record["request"],
        task=getattr(selection, "task", ""),
        data_card=getattr(selection, "card", ""),
        usage={
            "actions": history.actions,
            "iterations": history.iterations,
            "input_tokens": history.usage.input_tokens,
            "cached_tokens": history.usage.cached_tokens,
            "output_tokens": history.usage.output_tokens,
            "reasoning_tokens": history.usage.reasoning_tokens,
            "cached_share": round(history.usage.cached_share, 4),
            "cost_usd": round(history.usage.cost_usd, 6),
        },
        roles=history.roles_json(),
        run_dir=record["run_dir"],
        patients_known=getattr(index, "patients_known", None),
        grouped_by=getattr(index, "grouped_by", ""),
    )


def _with_model(result: Result, run: Run, delivered: Delivered) -> Result:
    extra = {
        "primary": delivered.primary(),
        "metrics": delivered.metrics(),
        "integrity": delivered.integrity,
        "model_dir": str(run.model),
        "patients": delivered.scores.n_patients if delivered.scores.patients_known else None,
    }
    return Result.from_json({**result.to_json(), **extra})


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
