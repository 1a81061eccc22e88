"""Harbor registry files: tasks in folders, in git repositories, and where the task folders are already."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from miles_data.findings import DataError
from tasks.folder import write_tasks
from tests.miles_data.rows_on_disk import ids, metadata, run


def registry(path: Path, *datasets: dict[str, Any]) -> Path:
    path.write_text(json.dumps(datasets))
    return path


def dataset(name: str, version: str, *tasks: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": version, "description": "", "tasks": tasks}


def test_the_format_is_that_of_the_harbor_package(tmp_path: Path) -> None:
    from harbor.models.registry import Registry

    task = {"name": "t", "git_url": "https://example.org/a.git", "git_commit_id": "abc", "path": "tasks/t"}
    read = Registry.from_path(registry(tmp_path / "registry.json", dataset("tb", "2.0", task)))
    assert [spec.name for spec in read.datasets] == ["tb"] and read.datasets[0].tasks[0].path == Path("tasks/t")


def test_one_dataset_of_a_registry_converts_and_unusable_tasks_are_listed(tmp_path: Path) -> None:
    names = write_tasks(tmp_path / "tasks", ["mkdir"], "train", 2, 0)
    (tmp_path / "tasks" / "multi").mkdir()
    (tmp_path / "tasks" / "multi" / "task.toml").write_text('[[steps]]\nname = "a"\n')
    tasks = [{"name": f"org/{name}", "path": f"tasks/{name}"} for name in [*names, "multi", "gone"]]
    source = registry(
        tmp_path / "registry.json",
        dataset("ours", "1.0", *tasks),
        dataset("ours", "2.0", tasks[0]),
        dataset("other", "head", *tasks[:1]),
    )
    output = tmp_path / "out.jsonl"
    report = run(Path(f"{source}#ours@1.0"), output)
    assert ids(output) == names
    fields = metadata(output)[0]
    assert (fields["dataset"], fields["registry_name"]) == ("ours@1.0", f"org/{names[0]}")
    assert fields["path"] == tasks[0]["path"]
    assert report.skipped == {"multi-step task": 1, "invalid task": 1}
    assert "multi: multi-step task" in str(report) and "gone: invalid task" in str(report)
    run(Path(f"{source}#other"), output)
    assert ids(output) == names[:1]
    unclear = {str(source): "holds 3 datasets", f"{source}#ours": "names 2 datasets", f"{source}#x": "names 0 datasets"}
    for given, message in unclear.items():
        with pytest.raises(DataError, match=f"{message}.*choose one of them.*ours@1.0, ours@2.0, other@head"):
            run(Path(given), output)


def test_git_tasks_come_from_the_tasks_folder_or_through_the_harbor_package(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (name,) = write_tasks(repository / "tasks", ["mkdir"], "train", 1, 0)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "tasks"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    task = {"name": name, "git_url": repository.as_uri(), "git_commit_id": commit, "path": f"tasks/{name}"}
    source, output = registry(tmp_path / "registry.json", dataset("git", "1", task)), tmp_path / "out.jsonl"
    # Harbor keeps what it fetched under the home folder.
    environment = os.environ | {"HOME": str(tmp_path / "home")}
    command = [sys.executable, "download_and_process_data.py", "--input", str(source), "--output", str(output)]
    subprocess.run(command, check=True, env=environment)
    assert metadata(output)[0]["git_commit_id"] == commit and ids(output) == [name]
    (tmp_path / "home").rename(tmp_path / "gone")
    repository.rename(tmp_path / "moved")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "git tasks" in done.stderr and "--tasks-dir" in done.stderr
    assert "Traceback" not in done.stderr
    run(source, output, tasks_dir=tmp_path / "moved" / "tasks")
    assert ids(output) == [name]
