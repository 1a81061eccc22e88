"""Rows a second and peak memory of the conversion, against what one would write or use instead, in the same run.

    uv run python benchmarks/convert.py              1 GB of JSON lines and 100,000 rows of parquet; about 5 minutes
    uv run python benchmarks/convert.py --mb 100     smaller

Against: a plain loop of `json.loads` and `json.dumps` (no rule checked, no duplicate found, nothing synced), and
`datasets.load_dataset(...).to_json` with an empty cache. Rows have the fields and sizes of SWE-bench. Every measurement
is a process of its own, imports included; its peak is its largest resident memory and, for each process that it starts,
as much as the largest of those has. The three take turns, the best of the rounds counts. Files stay in the page cache,
so that the disk's reading is not measured; the writing is.
CPU seconds tell how much of the time a busy machine took.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from miles_data.outcomes import MOST_PROCESSES

ROOT = Path(__file__).resolve().parents[1]
BYTES_PER_ROW = 11_600


def swe_rows(count: int) -> Iterator[dict[str, Any]]:
    """Rows as SWE-bench has them: code, patches and test names, about 11.6 kB of JSON each."""
    made = random.Random(0)
    words = [f"{made.getrandbits(40):x}" for _ in range(3000)]
    words += ["def", "return", "self.x", "'a'", '"b"', "\n", "\n    ", "é", "->", "assert", "(x)"]

    def text(length: int) -> str:
        return " ".join(made.choices(words, k=length // 11))

    # One text serves many rows at another place in it, so that making rows is not what takes the time.
    long = text(2_000_000)

    def part(length: int) -> str:
        start = made.randrange(len(long) - length)
        return long[start : start + length]

    for number in range(count):
        yield {
            "repo": "django/django",
            "instance_id": f"django__django-{number}",
            "base_commit": f"{made.getrandbits(160):040x}",
            "patch": part(2500),
            "test_patch": part(2800),
            "problem_statement": part(1600),
            "hints_text": part(500),
            "created_at": "2024-02-03T04:05:06Z",
            "version": "4.2",
            "FAIL_TO_PASS": [f"tests/test_{test}.py::test_{part(20)!r}" for test in range(6)],
            "PASS_TO_PASS": [f"tests/test_{test}.py::test_{part(20)!r}" for test in range(50)],
            "environment_setup_commit": f"{made.getrandbits(160):040x}",
        }


def plain_loop(source: Path, output: Path) -> None:
    if source.suffix == ".parquet":
        import pyarrow.parquet

        rows = (row for batch in pyarrow.parquet.ParquetFile(source).iter_batches(2000) for row in batch.to_pylist())
        with output.open("w") as file:
            for row in rows:
                file.write(json.dumps({"prompt": row["problem_statement"], "metadata": row}) + "\n")
        return
    with source.open() as lines, output.open("w") as file:
        for line in lines:
            row = json.loads(line)
            file.write(json.dumps({"prompt": row["problem_statement"], "metadata": row}) + "\n")


def datasets_library(source: Path, output: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    kind = "parquet" if source.suffix == ".parquet" else "json"
    cache = str(output.parent / "cache")
    datasets.load_dataset(kind, data_files=str(source), split="train", cache_dir=cache).to_json(str(output))


def converter(source: Path, output: Path) -> None:
    from download_and_process_data import main

    assert main(["--input", str(source), "--output", str(output)]) == 0


WAYS = {"this converter": converter, "plain json loop": plain_loop, "datasets to_json": datasets_library}


def measure(way: str, source: Path, folder: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds, and the peak in MB."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [sys.executable, __file__, "--one", way, "--source", str(source), "--output", str(folder / "out.jsonl")]
    began = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    seconds = time.perf_counter() - began
    processor, peak = done.stdout.rsplit("MEASURED", 1)[1].split()
    return seconds, float(processor), float(peak) / 1000


def compare(name: str, source: Path, rows: int, folder: Path, rounds: int) -> None:
    results: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            results[way].append(measure(way, source, folder))
    plain = min(run[0] for run in results["plain json loop"])
    print(f"\n{name}: {rows:,} rows, {source.stat().st_size / 1e6:,.0f} MB, best of {rounds}")
    print(f"  {'':18} {'seconds':>8} {'CPU s':>7} {'rows/s':>8} {'MB/s':>6} {'against plain':>14} {'peak MB':>8}")
    for way, runs in results.items():
        seconds = min(run[0] for run in runs)
        processor, peak = min(run[1] for run in runs), max(run[2] for run in runs)
        speed = source.stat().st_size / 1e6 / seconds
        figures = f"{seconds:8.2f} {processor:7.2f} {rows / seconds:8,.0f} {speed:6.0f}"
        print(f"  {way:18} {figures} {plain / seconds:13.1f}x {peak:8.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of the JSON lines")
    parser.add_argument("--parquet-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    for hidden in ("--one", "--source", "--output"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        WAYS[options.one](Path(options.source), Path(options.output))
        own, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        started = min(len(os.sched_getaffinity(0)), MOST_PROCESSES) if theirs.ru_maxrss else 0
        processor = own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime
        print("MEASURED", processor, own.ru_maxrss + started * theirs.ru_maxrss)
        return
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        lines = folder / "rows.jsonl"
        count = options.mb * 1_000_000 // BYTES_PER_ROW
        with lines.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in swe_rows(count))
        compare("JSON lines", lines, count, folder / "work", options.rounds)
        lines.unlink()

        import pyarrow
        import pyarrow.parquet

        table = folder / "rows.parquet"
        rows = swe_rows(options.parquet_rows)
        first = pyarrow.RecordBatch.from_pylist([next(rows) for _ in range(1000)])
        with pyarrow.parquet.ParquetWriter(table, first.schema) as writer:
            writer.write_batch(first)
            while batch := [row for row, _ in zip(rows, range(1000), strict=False)]:
                writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema=first.schema))
        compare("parquet", table, options.parquet_rows, folder / "work", options.rounds)


if __name__ == "__main__":
    main()
