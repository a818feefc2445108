"""The report template's four commands, for real, on tiny data: views, volumes, odd reports, a killed process, NaN."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from report_kit import FAST, assemble_report
from template_kit import NO_MEMORY, call, train_until_killed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return assemble_report(tmp_path / "work")


def _records(project: Path, part: str = "train") -> list[dict[str, Any]]:
    return list(json.loads((project / f"Datapath/{part}.json").read_text(encoding="utf-8")))


def _rewrite(project: Path, records: list[dict[str, Any]]) -> None:
    (project / "Datapath/train.json").write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")


def test_views_odd_reports_and_a_prediction_elsewhere(project: Path, tmp_path: Path) -> None:
    call(project, "example/make_example.py", "--cases", "60", "--views", "2", "--size", "32", "--language", "de")
    records = _records(project)
    records[0]["report"] = {"findings": "", "impression": " "}
    records[1]["report"]["findings"] = "Verlängert. " + "Es zeigt sich nichts weiter. " * 300
    records[2]["report"] = dict(records[3]["report"])  # the same text twice
    _rewrite(project, records)
    (project / "Datapath/test.json").rename(tmp_path / "test.json")  # it must not be needed
    printed = call(project, "plan.py", *FAST, "max_epochs=2").stdout
    assert "1 records have no text" in printed
    assert "longer than the limit" in printed
    call(project, "train.py")
    call(project, "export.py")
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert {"bleu_4", "label_f1", "shuffled_label_f1", "distinct", "constant_bleu_4"} <= set(metrics["validation"])
    rows = json.loads((project / "Logout/valid_predictions.json").read_text(encoding="utf-8"))
    assert set(rows[0]) == {"image", "patient", "findings", "impression", "reference"}
    trained = {record["patient"] for record in records}
    assert {row["patient"] for row in rows} < trained
    assert (project / "Logout/curves.png").stat().st_size > 1000
    _predicts_elsewhere(project, tmp_path)


def _predicts_elsewhere(project: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    (project / "Deliver").rename(moved)
    config = json.loads((moved / "config.json").read_text(encoding="utf-8"))
    assert (config["task"], config["classes"], config["multi_label"]) == ("report", [], True)
    text = "\n".join(file.read_text(encoding="utf-8") for file in moved.rglob("*.json"))
    assert "case_0" not in text
    assert str(project) not in text
    studies = [record["image_path"] for record in json.loads((tmp_path / "test.json").read_text(encoding="utf-8"))]
    half = [studies[0][0], "data/example/gone.png"]
    requests = [*studies, half, ["data/example/gone.png"], studies[0][0]]
    (project / "list.json").write_text(json.dumps(requests))
    done = call(
        project, str(moved / "predict.py"), "--list", "list.json", "-o", "out.json", "--batch", "3", check=False
    )
    assert done.returncode == 1, done.stderr
    results = json.loads((project / "out.json").read_text(encoding="utf-8"))
    assert [result["image"] for result in results] == requests
    assert "gone.png" in results[-2]["error"]
    assert "view skipped" in done.stderr
    assert {key: results[-3][key] for key in ("findings", "impression")} == {
        key: results[-1][key] for key in ("findings", "impression")
    }  # a study of which one view cannot be read is a study of one view
    answers = [set(r) - {"why"} for r in results if "error" not in r]
    assert all(keys == {"image", "findings", "impression", "out_of_distribution"} for keys in answers), answers
    assert all(r["findings"] for r in results if "error" not in r)
    code = f"import sys, json; sys.path.insert(0, {str(moved)!r}); from predict import predict; "
    code += f"print(json.dumps(predict({requests!r})))"  # the same batches: a barely trained writer hangs on roundings
    assert json.loads(call(project, "-c", code).stdout) == results


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_same_schedule(project: Path) -> None:
    """Without findings there is one part only, so that it gets all of the steps."""
    call(project, "example/make_example.py", "--cases", "60", "--size", "32")
    call(project, "plan.py", *FAST, "findings=[]", "max_steps=30")
    spent = train_until_killed(project)
    printed = call(project, "train.py", "--resume").stdout
    assert "report: going on from checkpoint" in printed
    rows = list(csv.DictReader((project / "Logout/log.csv").open()))
    assert int(rows[-1]["step"]) == 30, "earlier steps are counted"
    assert float(rows[0]["seconds"]) >= round(spent, 1), "earlier seconds are counted"
    assert float(rows[-1]["lr"]) < 0.1 * max(float(row["lr"]) for row in rows)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_clearly(project: Path) -> None:
    call(project, "example/make_example.py", "--cases", "30", "--size", "32")
    call(project, "plan.py", *FAST, "lr=1e38", "ema=0", "max_steps=1")
    done = call(project, "train.py", check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "loss" in done.stdout
    assert not (project / "Logout/metrics.json").exists()


@pytest.mark.slow
def test_volumes_and_impressions_alone(project: Path) -> None:
    call(project, "example/make_example.py", "--cases", "40", "--dims", "3", "--size", "16")
    records = _records(project)
    _rewrite(project, [{**record, "report": {"findings": "", **record["report"]}} for record in records])
    for record in records:
        record["report"] = {"impression": record["report"]["impression"] or "Normal study."}
    _rewrite(project, records)
    call(project, "plan.py", *FAST, "max_epochs=2")
    call(project, "train.py")
    call(project, "export.py")
    result = json.loads(call(project, "Deliver/predict.py", records[0]["image_path"]).stdout)[0]
    assert result["findings"] == ""
    assert result["impression"]


@pytest.mark.slow
def test_out_of_memory_halves_the_batch_then_ends(project: Path) -> None:
    call(project, "example/make_example.py", "--cases", "40", "--size", "32")
    call(project, "plan.py", *FAST, "batch=8")
    recipe = project / "recipe.py"
    recipe.write_text(recipe.read_text() + NO_MEMORY)
    done = call(project, "train.py", check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "going on with batch 4" in done.stdout


@pytest.mark.slow
def test_a_local_language_model_from_plan_to_prediction(project: Path, tmp_path: Path) -> None:
    """A tiny GPT-2 with random weights, made here; the deliverable must not need its folder."""
    call(project, "example/make_example.py", "--cases", "40", "--size", "32")
    folder = tmp_path / "gpt"
    code = f"""
import json
from m3b.training.report.dataset import read_index, read_report, join_sections
from m3b.training.report.tokenizer import ReportTokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
words = ReportTokenizer.train([join_sections(read_report(r)) for r in read_index()], 400)
GPT2LMHeadModel(GPT2Config(vocab_size=len(words), n_embd=32, n_layer=1, n_head=2, n_positions=400)).save_pretrained({str(folder)!r})
PreTrainedTokenizerFast(tokenizer_object=words.tokenizer).save_pretrained({str(folder)!r})
"""
    call(project, "-c", code)
    call(project, "plan.py", *FAST, f"network.text_model={folder}", "max_epochs=2")
    call(project, "train.py")
    call(project, "export.py")
    folder.rename(tmp_path / "gone")
    result = json.loads(call(project, "Deliver/predict.py", _records(project)[0]["image_path"]).stdout)[0]
    assert result["findings"]
    assert str(folder) not in (project / "Deliver/config.json").read_text(encoding="utf-8")
    assert "transformers" in (project / "Deliver/requirements.txt").read_text()


@pytest.mark.slow
def test_texts_follow_the_images_on_the_example(project: Path) -> None:
    """With the images shuffled, half of the F1 of stated findings is gone, and a constant report is beaten."""
    call(project, "example/make_example.py", "--cases", "200", "--size", "32")
    call(project, "plan.py", "--minutes", "2", "--set", "device=cpu", "network.width=64")
    call(project, "train.py")
    figures = json.loads((project / "Logout/metrics.json").read_text())["validation"]
    assert figures["shuffled_label_f1"] < 0.5 * figures["label_f1"], figures
    assert figures["bleu_4"] > figures["constant_bleu_4"], figures
    assert figures["distinct"] >= 5, figures
