"""The options of the conversion."""

from dataclasses import dataclass
from pathlib import Path

from miles_data.findings import DataError
from miles_data.output_lines import OnDuplicate
from miles_data.rejected_rows import rejected_path


@dataclass(frozen=True)
class ConvertOptions:
    """Turn a source into Miles JSONL: one {"prompt", "metadata"} object a line."""

    input: str
    """A .jsonl, .json or .csv file (also .gz, .zst), a .parquet file, a folder of Harbor task folders, a Harbor
    registry file (FILE#NAME@VERSION), a Hugging Face data set by name (NAME#CONFIG) or folder; `-` is standard
    input."""
    output: Path | None = None
    """The Miles JSONL file to write."""
    split: str | None = None
    """Take the rows of this split, and give it to rows without one (default: of a data set `train`, else all rows;
    those without get `train`)."""
    limit: int | None = None
    """Stop after this many written rows."""
    agent_name: str | None = None
    """The agent for rows that name none (default: mini-swe-agent)."""
    prompt_key: str | None = None
    """The field that holds the prompt (default: the first there is of problem_statement, instruction, prompt)."""
    id_key: str | None = None
    """The field that names the task (default: the first there is of instance_id, task_id, task_name, name, id)."""
    append: bool = False
    """Keep the rows of the output and add those that it does not have."""
    on_duplicate: OnDuplicate = "error"
    """What to do when an instance_id comes again with other content."""
    skip_bad_rows: bool = False
    """Write the good rows, and the bad ones with their reasons to <output>.rejected.jsonl."""
    tasks_dir: Path | None = None
    """Harbor task folders that every row must be found in; folders without a row are listed."""
    check: bool = False
    """Check that --input is good Miles JSONL; nothing is written."""
    tokenizer: str | None = None
    """Count prompt lengths in tokens of this model, a name or folder (default: characters)."""
    max_seq_len: int | None = None
    """Count the prompts that are longer than this, in tokens (without --tokenizer: characters)."""


def check_options(options: ConvertOptions) -> Path | None:
    """The file to write, links resolved so that their target is replaced; None with --check. Raises DataError."""
    for flag, value in (("--limit", options.limit), ("--max-seq-len", options.max_seq_len)):
        if value is not None and value < 1:
            raise DataError(f"{flag} must be at least 1, got {value}")
    if options.check:
        writing = {
            "--output": options.output is not None,
            "--append": options.append,
            "--skip-bad-rows": options.skip_bad_rows,
        }
        if given := [flag for flag, used in writing.items() if used]:
            raise DataError(f"--check writes nothing: leave out {', '.join(given)}, and name the file with --input")
        return None
    if options.output is None:
        raise DataError("--output is missing: the Miles JSONL file to write")
    output, source = options.output.resolve(), Path("/dev/stdin" if options.input == "-" else options.input)
    for path, what in ((output, "output"), (rejected_path(output), "file for rejected rows")):
        if path.exists() and source.exists() and path.samefile(source):
            raise DataError(f"the {what} {path} is the input; choose another --output")
        if path.exists() and not path.is_file():
            raise DataError(f"the {what} {path} exists and is no file; choose another --output")
    return output
