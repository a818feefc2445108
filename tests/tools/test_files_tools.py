from __future__ import annotations

import os

from m3b.messages import ToolCall
from m3b.tools import TOOLS


def test_write_read_list(desk) -> None:
    wrote = desk.use(
        "write_files", files=[{"path": "Model/net.py", "content": "a\nb\n"}, {"path": "x.txt", "content": "x"}]
    )
    assert wrote.text.splitlines() == ["Wrote Model/net.py (2 lines)", "Wrote x.txt (1 line)"]
    assert desk.use("read_files", paths=["Model/net.py"]).text == "== Model/net.py (lines 1-2 of 2) ==\na\nb"
    listing = desk.use("list_files").text
    assert "net.py  4 B" in listing
    assert "resources/  (read-only)" in listing


def test_list_marks_links_outside(desk) -> None:
    (desk.work / "leak").symlink_to("/etc")
    assert "leak  (a link that leads outside: cannot be used)" in desk.use("list_files").text


def test_read_pages(desk) -> None:
    (desk.work / "long.txt").write_text("".join(f"line {i}\n" for i in range(1000)))
    first = desk.use("read_files", paths=["long.txt"], limit=10)
    assert "lines 1-10 of 1,000; go on with offset=10" in first.text
    last = desk.use("read_files", paths=["long.txt"], offset=995, limit=10).text
    assert last.splitlines()[0] == "== long.txt (lines 996-1000 of 1,000) =="
    assert "past the end" in desk.use("read_files", paths=["long.txt"], offset=5000).text


def test_read_bounds_long_lines_and_results(desk) -> None:
    (desk.work / "wide.txt").write_text("y" * 10_000_000 + "\nend")
    text = desk.use("read_files", paths=["wide.txt"]).text
    assert len(text) < 3000
    assert text.endswith("end")
    (desk.work / "big.txt").write_text("z" * 99 + "\n" + ("z" * 99 + "\n") * 5000)
    result = desk.use("read_files", paths=["big.txt"], limit=2000)
    assert len(result.text) < 30_000
    assert "go on with offset=" in result.text


def test_read_refuses_binary_folder_pipe(desk) -> None:
    (desk.work / "a.bin").write_bytes(b"\0\1\2")
    os.mkfifo(desk.work / "pipe")
    assert "preview_files" in desk.use("read_files", paths=["a.bin"]).text
    assert "is a folder" in desk.use("read_files", paths=["data/chest"]).text
    assert "not a regular file" in desk.use("read_files", paths=["pipe"]).text
    both = desk.use("read_files", paths=["a.bin", "nothing.txt"])
    assert both.is_error


def test_copies_of_read_only_material_can_be_changed(desk) -> None:
    (desk.resources / "templates/t/sub").mkdir(parents=True)
    (desk.resources / "templates/t/train.py").write_text("a")
    (desk.resources / "templates/t/sub/run.sh").write_text("b")
    (desk.resources / "templates/t/sub/run.sh").chmod(0o555)
    (desk.resources / "templates/t/link").symlink_to("/etc/passwd")
    done = desk.use("copy_files", source="resources/templates/t", destination="Model")
    assert done.text == "Copied 2 files (2 B) to Model; 1 link or special file left out"
    assert os.access(desk.work / "Model/sub/run.sh", os.X_OK | os.W_OK)
    assert not desk.use("edit_files", path="Model/train.py", content="c").is_error
    desk.use("copy_files", source="resources/templates/t/train.py", destination="Model/sub/")
    assert (desk.work / "Model/sub/train.py").read_text() == "a"
    assert "lies inside" in desk.use("copy_files", source="Model", destination="Model/inner").text
    assert "read-only" in desk.use("copy_files", source="Model", destination="resources/x").text


def test_faults_of_the_model_come_back_as_results(desk) -> None:
    unknown = desk.box.call(ToolCall("1", "read_file", {}), ("read_files", "list_files"))
    assert unknown.is_error
    assert "Did you mean read_files?" in unknown.text
    assert "list_files" in unknown.text
    hidden = desk.box.call(ToolCall("1", "run_script", {"command": "ls"}), ("read_files",))
    assert "no tool 'run_script' here" in hidden.text
    broken = desk.box.call(ToolCall("1", "read_files", parse_error="line 1: bad"), tuple(TOOLS))
    assert "line 1: bad" in broken.text
    assert "read_files(paths, offset=0, limit=400)" in broken.text
    assert "Argument limit: an integer is needed" in desk.use("read_files", paths=["a"], limit="many").text
    assert "does not exist" in desk.use("read_files", paths="nothing.txt").text
    desk.use("write_files", files=[{"path": "f", "content": ""}])
    assert desk.use("write_files", files=[{"path": "f/g", "content": ""}]).is_error
    assert desk.use("write_files", files=[{"path": "n" * 300, "content": ""}]).is_error


def test_a_full_disk_is_said(desk, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = desk.use("write_files", files=[{"path": "a", "content": "a"}])
    assert result.is_error
    assert "disk is full" in result.text
    assert not list(desk.work.glob(".a*"))


def test_long_results_are_kept_whole(make_desk) -> None:
    desk = make_desk(max_result_chars=1000)
    for index in range(200):
        (desk.work / f"some_file_{index}.txt").touch()
    result = desk.use("list_files")
    assert len(result.text) < 1200
    assert result.data["full"] == "Logout/results/001.txt"
    assert "Logout/results/001.txt" in result.text
    full_result = (desk.work / "Logout/results/001.txt").read_text()
    assert full_result.count("some_file_") == 200


def test_specs_are_stable(desk) -> None:
    names = [spec.name for spec in desk.box.tool_specs(["run_script", "list_files"])]
    assert names == ["list_files", "run_script"]
    assert desk.box.tool_specs(TOOLS) == desk.box.tool_specs(list(reversed(TOOLS)))
