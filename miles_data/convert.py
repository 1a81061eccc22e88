"""The conversion: source, rules, duplicates, output."""

from contextlib import ExitStack, closing
from pathlib import Path

from disk.atomic_file import atomic_file, remove_left_over_files
from miles_data.findings import BadRow, BadRows, DataError, Finding, Findings
from miles_data.json_lines import numbered_lines
from miles_data.json_text import parse_line
from miles_data.options import ConvertOptions, check_options
from miles_data.outcomes import outcomes
from miles_data.output_lines import OutputLines
from miles_data.progress import with_progress
from miles_data.prompt_lengths import PromptLengths
from miles_data.prompts import Prompt, parse_prompt, read_prompts
from miles_data.records import Record
from miles_data.rejected_rows import RejectedRows, rejected_path
from miles_data.report import Report
from miles_data.rows import Broken, JsonObject, Meter, Skipped, Source
from miles_data.rules import Rules
from miles_data.sources import open_source
from miles_data.task_folders import TaskFolders

REPLACED = "duplicate, a later row kept"


def convert(options: ConvertOptions) -> Report:
    """Write the output file and say what was done; with `check` only read and say what is there.

    Raises BadRows when rows break rules, and DataError when the options, the input or the disk make it impossible; the
    old output is untouched then. The same input gives the same bytes.
    """
    output = check_options(options)
    try:
        return _check(options) if output is None else _write(options, output)
    except OSError as error:
        doing = f"check {options.input}" if output is None else f"convert {options.input} to {options.output}"
        raise DataError(f"cannot {doing}: {error}") from error


def _write(options: ConvertOptions, output: Path) -> Report:
    source = open_source(options.input, options.split, options.tasks_dir)
    report = Report(output, PromptLengths(options.tokenizer), max_seq_len=options.max_seq_len)
    report.rejected_file = rejected_path(output)
    tasks = TaskFolders(options.tasks_dir) if options.tasks_dir else None
    remove_left_over_files(output.parent)
    with ExitStack() as stack:
        file = stack.enter_context(atomic_file(output))
        rejected = RejectedRows(report.rejected_file, stack) if options.skip_bad_rows else None
        lines = stack.enter_context(closing(OutputLines(file, options.on_duplicate)))
        before = _state(output) if options.append else None
        if before:
            _keep_old_lines(output, lines, report, tasks)
        conversion = Conversion(options, source, lines, report, tasks, rejected)
        conversion.run()
        if report.rejected.total and (rejected is None or not (report.written or report.skipped["duplicate"])):
            what = f"{report.rejected.total} of {report.read} rows of {options.input} cannot be converted"
            way_out = "" if rejected else " (--skip-bad-rows writes the good ones)"
            raise BadRows(f"{what}; nothing was written{way_out}:", report.rejected, tasks.note() if tasks else "")
        if not report.written and not report.kept and not report.skipped["duplicate"]:
            raise DataError(f"{options.input} gives no row; nothing was written\n{report}")
        lines.finish()
        if options.append and _state(output) != before:
            raise DataError(f"{output} was changed by someone else meanwhile; nothing was written: append again")
        if rejected:
            rejected.finish()
    if tasks:
        report.notes.append(tasks.note())
    return report


def _state(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file is written or replaced; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _keep_old_lines(output: Path, lines: OutputLines, report: Report, tasks: TaskFolders | None) -> None:
    """Copy the lines that are there, each ended properly. Raises BadRows when one of them is no record."""
    findings = Findings()
    with output.open("rb") as file:
        for number, line in numbered_lines(file):
            if not line or line.isspace():
                continue
            try:
                instance_id = parse_prompt(line, number).instance_id
                if instance_id in lines:
                    raise BadRow("duplicate instance_id", f"{instance_id!r} is in the output already")
                if tasks:
                    tasks.check(instance_id)
            except BadRow as bad:
                findings.add(bad.at(f"line {number}"))
                continue
            lines.add(instance_id, line.rstrip(b"\r\n") + b"\n")
            report.kept += 1
    if findings.total:
        raise BadRows(f"{findings.total} lines of {output}, to which --append would add, are no records:", findings)


class Conversion:
    """Takes the items of a source one by one into the output, the report or the file of rejected rows."""

    def __init__(
        self,
        options: ConvertOptions,
        source: Source,
        lines: OutputLines,
        report: Report,
        tasks: TaskFolders | None,
        rejected: RejectedRows | None,
    ) -> None:
        # A source with splits of its own has selected the rows; the rules must not select again by a field of theirs.
        wanted = None if source.split else options.split
        self._rules = Rules(options.prompt_key, options.agent_name, wanted, source.split, options.id_key)
        self._source, self._lines, self._report = source, lines, report
        self._tasks, self._rejected, self._limit = tasks, rejected, options.limit
        self._old_end = lines.end

    def run(self) -> None:
        report = self._report
        lengths_only = report.lengths.unit == "characters"
        found = outcomes(self._source, self._rules, self._limit, lengths_only, self._lines.flush)
        with closing(found):
            for outcome in with_progress(found, self._source.meter, "converting"):
                report.read += 1
                match outcome:
                    case Record():
                        try:
                            self._add(outcome)
                        except BadRow as bad:
                            row = outcome.row
                            self._reject(bad.at(row.place), bytes(row.text) or row.fields or {})
                        if report.written == self._limit:
                            break
                    case Skipped():
                        report.skip(outcome)
                    case Broken():
                        self._reject(outcome.finding, outcome.text or outcome.fields)
        report.notes += self._source.notes
        if self._rules.id_key not in (None, "instance_id"):
            report.notes.append(f"instance_id is the field {self._rules.id_key}")

    def _add(self, record: Record) -> None:
        report, instance_id = self._report, record.instance_id
        if self._tasks:
            self._tasks.check(instance_id)
        was_old = instance_id in self._lines and self._lines.offset(instance_id) < self._old_end
        match self._lines.add(instance_id, *record.line):
            case "same":
                report.skipped["duplicate"] += 1
                return
            case "kept first":
                report.skipped["duplicate, the first row kept"] += 1
                return
            case "replaced" if was_old:
                report.kept -= 1
                report.replaced += 1
            case "replaced":
                report.written -= 1
                report.skipped[REPLACED] += 1
                report.lengths.remove(parse_line(self._lines.replaced)["prompt"])
            case "added":
                pass
        report.written += 1
        report.lengths.add(record.prompt)

    def _reject(self, finding: Finding, row: JsonObject | bytes) -> None:
        self._report.rejected.add(finding)
        if self._rejected:
            self._rejected.add(finding, row)


def _check(options: ConvertOptions) -> Report:
    path = Path("/dev/stdin" if options.input == "-" else options.input)
    report = Report(path, PromptLengths(options.tokenizer), max_seq_len=options.max_seq_len, written_label="good")
    tasks = TaskFolders(options.tasks_dir) if options.tasks_dir else None
    meter = Meter(path.stat().st_size, "bytes")
    for item in with_progress(read_prompts(path, meter), meter, "checking"):
        report.read += 1
        try:
            if isinstance(item, Prompt) and tasks:
                tasks.check(item.instance_id)
        except BadRow as bad:
            item = bad.at(f"line {item.line}") if isinstance(item, Prompt) else item
        if isinstance(item, Prompt):
            report.written += 1
            report.lengths.add(item.prompt)
        else:
            report.rejected.add(item)
    if tasks:
        report.notes.append(tasks.note())
    if report.rejected.total:
        what = f"{report.rejected.total} of {report.read} lines of {path} are no records for Miles:"
        raise BadRows(what, report.rejected, tasks.note() if tasks else "")
    if not report.written:
        raise DataError(f"{path} holds no record")
    return report
