"""The Harbor task folders of --tasks-dir against the rows."""

from pathlib import Path

from miles_data.findings import SHOWN, BadRow, DataError


class TaskFolders:
    """Every folder with a task.toml, and which of them a row has named."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"--tasks-dir {folder} is not a folder; name the one that holds the Harbor task folders")
        self.folder = folder
        self._without_row = {path.parent.name for path in folder.glob("*/task.toml")}
        self._count = len(self._without_row)
        if not self._count:
            raise DataError(f"no subfolder of --tasks-dir {folder} holds a task.toml")

    def check(self, instance_id: str) -> None:
        """Note that a row names this task. Raises BadRow where it has no folder."""
        if not (self.folder / instance_id / "task.toml").is_file():
            raise BadRow("no task folder", f"{instance_id!r} has none in {self.folder}")
        self._without_row.discard(instance_id)

    def note(self) -> str:
        """The other side, as one sentence."""
        left = sorted(self._without_row)
        if not left:
            return f"every one of the {self._count} tasks in {self.folder} has a row"
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        return f"{len(left)} of {self._count} tasks in {self.folder} have no row: {', '.join(left[:SHOWN])}{more}"
