"""The families: what is asked about a log, one line of bash that answers it, and which other answers earn a part.

The log must stay as it is. With partial credit, in a file that has the right name:

| family                                | reward | content                                            |
|---------------------------------------|--------|----------------------------------------------------|
| those that want lines                 | 0.2    | the other lines, all lines, or the number of lines |
| those that count                      | 0.2    | the number of all or of the other lines, or the lines themselves |
| those that want a field               | 0.2    | another field of every line                        |
| syslog_hosts                          | 0.5    | the hosts, not sorted or not each once             |
| traceback_name                        | 0.3    | the whole line of the exception                    |
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from examples.log_fields.formats import VOCABULARIES, Vocabulary, json_lines, nginx, syslog, traceback
from tasks.collection import Collection
from tasks.instance import Instance, validate_place
from tasks.verifier import FileState, Holds, Level
from tasks.words import Split

LINES = ("nginx_lines", "nginx_count", "syslog_lines", "json_lines", "traceback_files", "traceback_error")
FIELDS = ("nginx_address", "nginx_path", "nginx_status", "syslog_host", "json_user", "syslog_hosts", "traceback_name")
FAMILIES = LINES + FIELDS


@dataclass(frozen=True)
class _Question:
    """What is asked about `lines`: its sentence, a command, the right answer and the partly right ones."""

    about: str  # what the log is
    lines: list[str]
    sentence: str  # `{target}` stands for the file to write
    command: str  # `{log}` and `{target}` stand for the files
    answer: Sequence[str]
    partial: Sequence[tuple[float, Sequence[str]]]


def _columns(lines: Sequence[str], right: int) -> list[tuple[float, list[str]]]:
    """Every other column that all lines have, columns apart by spaces as for awk and counted from 1."""
    split = [line.split() for line in lines]
    return [(0.2, [row[n] for row in split]) for n in range(min(map(len, split))) if n != right - 1]


def _column(about: str, lines: list[str], what: str, number: int) -> _Question:
    return _Question(
        about,
        lines,
        f"Write {what} of every line to {{target}}.",
        f"awk '{{{{print ${number}}}}}' {{log}} > {{target}}",
        [line.split()[number - 1] for line in lines],
        _columns(lines, number),
    )


def _matching(about: str, lines: list[str], what: str, pattern: str, count: bool = False) -> _Question:
    """The lines that hold `pattern`, or how many they are; the pattern means itself to grep."""
    right = [line for line in lines if pattern in line]
    others = [line for line in lines if pattern not in line]
    number, rest, whole = [str(len(right))], [str(len(others))], [str(len(lines))]
    if count:
        sentence, flag, answer = f"Count the lines {what} and write the number to {{target}}.", "-c ", number
        near = [rest, whole, right]
    else:
        sentence, flag, answer = f"Write the lines {what} to {{target}}.", "", right
        near = [others, lines, number]
    command = f"grep {flag}'{pattern}' {{log}} > {{target}}"
    return _Question(about, lines, sentence, command, answer, [(0.2, content) for content in near])


_NGINX, _SYSLOG = "a log of a web server", "a log of the system"
_PYTHON, _JSON = "a log of a Python program", "a log in JSON"


def _nginx_lines(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, status = nginx(rng, words, length)
    return _matching(_NGINX, lines, f"with the status {status}", f" {status} ")


def _nginx_count(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, status = nginx(rng, words, length)
    return _matching(_NGINX, lines, f"with the status {status}", f" {status} ", count=True)


def _nginx_address(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    return _column(_NGINX, nginx(rng, words, length)[0], "the address", 1)


def _nginx_path(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    return _column(_NGINX, nginx(rng, words, length)[0], "the path", 7)


def _nginx_status(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    return _column(_NGINX, nginx(rng, words, length)[0], "the status", 9)


def _syslog_lines(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, program = syslog(rng, words, length)
    return _matching(_SYSLOG, lines, f"of the program {program}", f" {program}")


def _syslog_host(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    return _column(_SYSLOG, syslog(rng, words, length)[0], "the host", 4)


def _syslog_hosts(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, _ = syslog(rng, words, length)
    hosts = [line.split()[3] for line in lines]
    return _Question(
        _SYSLOG,
        lines,
        "Write the hosts to {target}, sorted and each once.",
        "awk '{{print $4}}' {log} | sort -u > {target}",
        sorted(set(hosts)),
        [(0.5, hosts), (0.5, sorted(hosts)), *_columns(lines, 4)],
    )


def _traceback_files(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    return _matching(_PYTHON, traceback(rng, words, length)[0], "that name a File", "File ")


def _traceback_error(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, _ = traceback(rng, words, length)
    return _Question(
        _PYTHON,
        lines,
        "Write the last line to {target}.",
        "tail -n 1 {log} > {target}",
        lines[-1:],
        [(0.2, lines[:1]), *((0.2, lines[-n:]) for n in range(2, len(lines) + 1))],
    )


def _traceback_name(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, name = traceback(rng, words, length)
    return _Question(
        _PYTHON,
        lines,
        "Write the name of the exception in the last line to {target}.",
        "tail -n 1 {log} | cut -d: -f1 > {target}",
        [name],
        [(0.3, lines[-1:])],
    )


def _json_lines(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, level = json_lines(rng, words, length)
    return _matching(_JSON, lines, f"with the level {level}", f'"{level}"')


def _json_user(rng: random.Random, words: Vocabulary, length: int) -> _Question:
    lines, _ = json_lines(rng, words, length)
    split = [line.split('"') for line in lines]
    return _Question(
        _JSON,
        lines,
        "Write the user of every line to {target}.",
        "cut -d'\"' -f12 {log} > {target}",
        [parts[11] for parts in split],
        [(0.2, [parts[n] for parts in split]) for n in range(min(map(len, split))) if n != 11],
    )


_MAKERS: dict[str, Callable[[random.Random, Vocabulary, int], _Question]] = {
    "nginx_lines": _nginx_lines,
    "nginx_count": _nginx_count,
    "nginx_address": _nginx_address,
    "nginx_path": _nginx_path,
    "nginx_status": _nginx_status,
    "syslog_lines": _syslog_lines,
    "syslog_host": _syslog_host,
    "syslog_hosts": _syslog_hosts,
    "traceback_files": _traceback_files,
    "traceback_error": _traceback_error,
    "traceback_name": _traceback_name,
    "json_lines": _json_lines,
    "json_user": _json_user,
}


def _file(path: str, lines: Sequence[str]) -> Holds:
    """A file of these lines; the newline at its end is optional, since the sentences do not speak of it."""
    text = "\n".join(lines)
    return Holds(path, (f"{text}\n", text))


def make(family: str, split: Split, seed: int) -> Instance:
    """The instance of these three values. Raises UnknownFamily for a family or split that does not exist."""
    validate_place(FAMILIES, family, split, seed)
    words = VOCABULARIES[split]
    rng = random.Random(f"{family}/{split}/{seed}")
    log, target = rng.choice(words.logs), rng.choice(words.targets)
    question = _MAKERS[family](rng, words, rng.randint(5, 8))
    kept = Holds(log, ("".join(f"{line}\n" for line in question.lines),))
    # A partly right answer may happen to be the right one: then it is paid in full, by the level above.
    partial = sorted(question.partial, key=lambda part: -part[0])
    return Instance(
        family,
        split,
        seed,
        f"{log} is {question.about}. Its first line is:\n{question.lines[0]}\n"
        f"{question.sentence.format(target=target)}",
        question.command.format(log=log, target=target),
        FileState(
            (_file(target, question.answer), kept),
            tuple(Level(reward, (_file(target, content), kept)) for reward, content in partial),
        ),
        {log: kept.contents[0]},
    )


LOG_FIELDS = Collection(
    name="log-fields",
    about="One question about a log file",
    image="ubuntu:24.04",
    groups={"all": FAMILIES, "lines": LINES, "fields": FIELDS},
    make=make,
)
