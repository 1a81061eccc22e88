"""The conversion: source, rules, duplicates, output."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from disk.atomic_file import atomic_file
from miles_data.findings import BadRow, BadRows, DataError, Finding, Findings
from miles_data.json_lines import dump_line, numbered_lines
from miles_data.prompts import parse_prompt
from miles_data.rows import Row, Skipped, Source
from miles_data.rules import Rules
from miles_data.sources import open_source


@dataclass(frozen=True)
class ConvertOptions:
    """Turn a source into Miles JSONL: one {"prompt", "metadata"} object a line.

    Any row that breaks a rule makes the conversion fail as a whole, and the old output stays as it was.
    """

    input: str
    """A folder of Harbor task folders, or a .jsonl file."""
    output: Path
    """The Miles JSONL file to write."""
    split: str | None = None
    """Take the rows of this split, and give it to rows without one (default: all rows; those without get `train`)."""
    limit: int | None = None
    """Stop after this many written rows."""
    agent_name: str | None = None
    """The agent for rows that name none (default: mini-swe-agent)."""
    prompt_key: str | None = None
    """The field that holds the prompt (default: the first there is of problem_statement, instruction, prompt)."""
    append: bool = False
    """Keep the rows of the output and add those that it does not have."""


@dataclass
class Report:
    """What a conversion did. `written` leaves out what `--append` found in place; `skipped` counts by reason."""

    output: Path
    read: int = 0
    written: int = 0
    kept: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    listed: list[Skipped] = field(default_factory=list[Skipped])

    def __str__(self) -> str:
        lines = [f"{self.output}: {self.read} rows read, {self.written} written"]
        if self.kept:
            lines[0] += f", {self.kept} kept"
        lines += [f"  left out, {reason}: {count}" for reason, count in self.skipped.most_common()]
        lines += [f"  {item.place}: {item.reason}" for item in self.listed]
        return "\n".join(lines)


def convert(options: ConvertOptions) -> Report:
    """Write the output file and say what was done.

    Raises BadRows when rows break rules, and DataError when the options, the input or the disk make it impossible; the
    old output is untouched then. The same input gives the same bytes.
    """
    output = _check_output(options)
    source = open_source(options.input)
    report, findings = Report(options.output), Findings()
    digests: dict[str, bytes] = {}
    try:
        with atomic_file(output) as file:
            if options.append and output.exists():
                for line in _old_lines(output, digests):
                    file.write(line)
                report.kept = len(digests)
            for line in _new_lines(options, source, digests, report, findings):
                file.write(line)
            if findings.total:
                what = f"{findings.total} of {report.read} rows of {options.input} cannot be converted"
                raise BadRows(f"{what}; nothing was written:", findings)
            if not report.written and not report.kept and not report.skipped["duplicate"]:
                raise DataError(f"{options.input} gives no row; nothing was written\n{report}")
    except OSError as error:
        raise DataError(f"cannot convert {options.input} to {options.output}: {error}") from error
    return report


def _check_output(options: ConvertOptions) -> Path:
    if options.limit is not None and options.limit < 1:
        raise DataError(f"--limit must be at least 1, got {options.limit}")
    # Through a link, its target is what gets replaced.
    output, source = options.output.resolve(), Path(options.input)
    if output.exists() and source.exists() and output.samefile(source):
        raise DataError(f"the output {options.output} is the input; choose another --output")
    if output.exists() and not output.is_file():
        raise DataError(f"the output {options.output} exists and is no file; choose another --output")
    return output


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()


def _old_lines(output: Path, digests: dict[str, bytes]) -> Iterator[bytes]:
    """The lines that are there, each ended properly. Raises BadRows when one of them is no record."""
    findings = Findings()
    for number, line in numbered_lines(output):
        if not line.strip():
            continue
        try:
            prompt = parse_prompt(line, number)
            if prompt.instance_id in digests:
                raise BadRow("duplicate instance_id", f"{prompt.instance_id!r} is in the output already")
            digests[prompt.instance_id] = _digest(dump_line({"prompt": prompt.prompt, "metadata": prompt.metadata}))
        except BadRow as bad:
            findings.add(bad.at(f"line {number}"))
        yield line + b"\n"
    if findings.total:
        raise BadRows(f"{findings.total} lines of {output}, to which --append would add, are no records:", findings)


def _new_lines(
    options: ConvertOptions, source: Source, digests: dict[str, bytes], report: Report, findings: Findings
) -> Iterator[bytes]:
    rules = Rules(options.prompt_key, options.agent_name, options.split)
    for item in source.rows():
        match item:
            case Skipped():
                report.skipped[item.reason.partition(":")[0]] += 1
                if item.listed:
                    report.listed.append(item)
            case Finding():
                report.read += 1
                findings.add(item)
            case Row():
                report.read += 1
                try:
                    line = _line(rules, item, digests, report)
                except BadRow as bad:
                    findings.add(bad.at(item.place))
                    continue
                if line is None:
                    continue
                report.written += 1
                yield line
                if report.written == options.limit:
                    return


def _line(rules: Rules, row: Row, digests: dict[str, bytes], report: Report) -> bytes | None:
    record = rules.record(row.fields)
    if record is None:
        report.skipped["another split"] += 1
        return None
    line = dump_line(record)
    instance_id: str = record["metadata"]["instance_id"]
    digest = _digest(line)
    known = digests.setdefault(instance_id, digest)
    if known != digest:
        raise BadRow("duplicate instance_id", f"{instance_id!r} came before with another content")
    if known is not digest:
        report.skipped["duplicate"] += 1
        return None
    return line
