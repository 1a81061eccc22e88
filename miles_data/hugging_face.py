"""Data sets of the Hugging Face `datasets` library: by name (streamed), as saved by it, or a folder of data files."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from miles_data.arrow_rows import objects
from miles_data.data_file import DATA_FILES, open_data_file
from miles_data.findings import DataError
from miles_data.input_file import RemoteFile
from miles_data.optional_package import optional_package
from miles_data.rows import Broken, Item, Meter, PlainSource, Row

_BATCH = 64  # rows; larger ones hold more of a streamed data set in memory and are hardly faster
_PREFERRED = "train"


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote the folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def holds_data_files(folder: Path) -> bool:
    return any(path.suffix == ".arrow" or _readable(path) for path in folder.rglob("*"))


def _readable(path: Path | RemoteFile) -> bool:
    return path.name.endswith(DATA_FILES) and (isinstance(path, Path) or path.suffix != ".parquet")


def _datasets(given: str) -> Any:
    # Without a hub in reach, its client logs every retry at length before the error that we report.
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    datasets = optional_package("datasets", "datasets", f"reading {given}")
    datasets.disable_progress_bars()
    return datasets


def _choose(given: str, splits: list[str], wanted: str | None) -> tuple[str, list[str]]:
    """The split to take, and a note on those left out. Raises DataError where there is no such split or no telling."""
    if wanted is not None and wanted not in splits:
        raise DataError(f"{given} has no split {wanted}; it has {', '.join(splits)}")
    split = wanted or (splits[0] if len(splits) == 1 else _PREFERRED)
    if split not in splits:
        raise DataError(f"{given} has the splits {', '.join(splits)}; choose one with --split")
    others = [name for name in splits if name != split]
    note = f"split {split} of {given}; left out: {', '.join(others)} (--split)"
    return split, [note] if others and not wanted else []


@dataclass
class ArrowTables(PlainSource):
    """A Dataset or IterableDataset of the library."""

    given: str
    data: Any

    def rows(self) -> Iterator[Item]:
        number = 0
        try:
            for table in self.data.with_format("arrow").iter(batch_size=_BATCH):
                for fields in objects(table):
                    number += 1
                    yield Row(f"row {number}", fields)
        except _failures() as error:
            raise _unreadable(self.given, error) from error


@dataclass
class DataFiles(PlainSource):
    """The files of one split, read by the readers for single files.

    The library's own would turn text that looks like a date into a timestamp, without its zone, and fill in fields that
    a row lacks.
    """

    given: str
    files: list[Path | RemoteFile]

    def rows(self) -> Iterator[Item]:
        for path in self.files:
            prefix = f"{path.name} " if len(self.files) > 1 else ""
            reader = open_data_file(path)
            reader.meter = self.meter
            try:
                yield from (_placed(item, prefix) for item in reader.rows())
            except _failures() as error:
                raise _unreadable(self.given, error) from error


def _placed(item: Item, prefix: str) -> Item:
    if isinstance(item, Broken):
        item.finding = replace(item.finding, place=prefix + item.finding.place)
    else:
        item.place = prefix + item.place
    return item


def open_saved(folder: Path, wanted: str | None) -> ArrowTables:
    """A folder of `save_to_disk`. Raises DataError."""
    datasets = _datasets(str(folder))
    try:
        data = datasets.load_from_disk(str(folder))
    except _failures() as error:
        raise _unreadable(str(folder), error) from error
    notes: list[str] = []
    split: str | None = str(data.split) if getattr(data, "split", None) is not None else None
    if isinstance(data, datasets.DatasetDict):
        split, notes = _choose(str(folder), list(data), wanted)
        data = data[split]
    elif wanted is not None and split is not None and wanted != split:
        raise DataError(f"{folder} has no split {wanted}; it is the split {split}")
    return ArrowTables(str(folder), data, meter=Meter(len(data)), split=split or wanted, notes=notes)


def open_dataset(given: str, config: str | None, wanted: str | None) -> DataFiles | ArrowTables:
    """A data set of the hub by name, or a folder of data files as the hub has them.

    Splits are found by the library's rules. Raises DataError, also where the hub cannot be reached.
    """
    datasets = _datasets(given)
    folder = Path(given).resolve() if Path(given).is_dir() else None
    try:
        builder = datasets.load_dataset_builder(str(folder or given), config)
        files: dict[Any, list[str]] = builder.config.data_files or {}
        names = list(files) or datasets.get_dataset_split_names(str(folder or given), config)
    except _failures() as error:
        raise _unreadable(given, error) from error
    split, notes = _choose(given, [str(name) for name in names], wanted)
    paths = [Path(url) if folder else RemoteFile(str(url)) for url in files.get(split, [])]
    if paths and all(map(_readable, paths)):
        sizes = [path.stat().st_size for path in paths if isinstance(path, Path)]
        return DataFiles(given, paths, meter=Meter(sum(sizes), "bytes"), split=split, notes=notes)
    try:
        data = datasets.load_dataset(str(folder or given), config, split=split, streaming=True)
        known: dict[str, Any] = data.info.splits or {}
        meter = Meter(int(known[split].num_examples) if split in known else 0)
    except _failures() as error:
        raise _unreadable(given, error) from error
    return ArrowTables(given, data, meter=meter, split=split, notes=notes)


def _failures() -> tuple[type[Exception], ...]:
    """What the library raises for data that is not there or not readable, its own and those of what it is built on."""
    from httpx import HTTPError

    datasets = _datasets("data sets")
    arrow = optional_package("pyarrow", "pyarrow", "reading data sets").ArrowException
    # ConnectionError and the hub's own errors are OSErrors; ValueError is an unknown configuration or broken metadata.
    return (OSError, ValueError, HTTPError, arrow, datasets.exceptions.DatasetsError)


def _unreadable(given: str, error: Exception) -> DataError:
    cause = " ".join(str(error).split()) or type(error).__name__
    # What is not here was asked of the hub, and may as well be a mistyped path.
    here = "" if Path(given).exists() else f"{given} is no file or folder here, and "
    if isinstance(error, (ConnectionError, TimeoutError)):
        return DataError(f"{here}the Hugging Face hub cannot be reached for {given}: {cause}")
    return DataError(f"{here}{given} cannot be read as a data set: {cause}")
