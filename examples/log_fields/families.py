"""The families: what is asked about a log, one line of bash that answers it, and which other answers earn a part.

`READ` families show the last line of the log and ask for one field of it; `SEARCH` families ask for lines of the file,
which the sentence does not show. The log must stay as it is. With partial credit 0.2 is paid for a file of the right
name with

| families | content                                                        |
|----------|----------------------------------------------------------------|
| READ     | another field of the line, or the whole line                   |
| SEARCH   | the other lines, all lines, their number, or lines for number  |
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from examples.log_fields.formats import VOCABULARIES, Log, Vocabulary, json_lines, nginx, python, syslog
from tasks.collection import Collection
from tasks.instance import Instance, validate_place
from tasks.verifier import FileState, Holds, Level, quote
from tasks.words import Split

LOG, TARGET = "app.log", "answer.txt"
PART = 0.2

_FORMATS: dict[str, Callable[[random.Random, Vocabulary, int], Log]] = {
    "nginx": nginx,
    "syslog": syslog,
    "json": json_lines,
    "python": python,
}
_READ = {
    "syslog_host": "host",
    "syslog_program": "program",
    "syslog_time": "time",
    "json_user": "user",
    "json_level": "level",
    "python_error": "exception",
    "nginx_address": "address",
    "nginx_path": "path",
    "nginx_status": "status",
}
_LINES = {"syslog_lines": "program", "json_lines": "level", "nginx_lines": "status"}
_COUNTS = {"json_count": "level", "nginx_count": "status"}

READ = tuple(_READ)
SEARCH = (*_LINES, *_COUNTS)
FAMILIES = READ + SEARCH


@dataclass(frozen=True)
class _Question:
    """Its sentence, a command that answers it, the right content of the answer and the partly right ones."""

    sentence: str
    command: str
    answer: str
    partial: Sequence[str]


def _read(log: Log, field: str) -> _Question:
    line, answer = log.lines[-1], log.fields[field]
    others = {part for part in (*re.split(r"[\s\"\[\]]+", line), *log.fields.values()) if part}
    return _Question(
        f"{LOG} ends with\n{line}\nWhat is the {field}? Write it to {TARGET}.",
        f"echo {quote(answer)} > {TARGET}",
        answer,
        [*sorted(others - {answer}), line],
    )


def _search(log: Log, field: str, *, count: bool) -> _Question:
    right = [line for line in log.lines if log.pattern in line]
    others = [line for line in log.lines if log.pattern not in line]
    number, lines = str(len(right)), "\n".join(right)
    near = [str(len(others)), str(len(log.lines)), "\n".join(others), "\n".join(log.lines)]
    if count:
        sentence = f"How many lines of {LOG} have the {field} {log.wanted}? Write the number to {TARGET}."
        return _Question(sentence, f"grep -cF {quote(log.pattern)} {LOG} > {TARGET}", number, [*near, lines])
    sentence = f"Which lines of {LOG} have the {field} {log.wanted}? Write them to {TARGET}."
    return _Question(sentence, f"grep -F {quote(log.pattern)} {LOG} > {TARGET}", lines, [*near, number])


def _answer(content: str) -> Holds:
    """The newline at the end is optional, since the sentences do not speak of it."""
    return Holds(TARGET, (f"{content}\n", content))


def make(family: str, split: Split, seed: int) -> Instance:
    """The instance of these three values. Raises UnknownFamily for a family or split that does not exist."""
    validate_place(FAMILIES, family, split, seed)
    rng = random.Random(f"{family}/{split}/{seed}")
    # A short log would let a guess pass for a count.
    length = rng.randint(3, 6) if family in _READ else rng.randint(15, 40)
    log = _FORMATS[family.partition("_")[0]](rng, VOCABULARIES[split], length)
    if family in _READ:
        question = _read(log, _READ[family])
    else:
        question = _search(log, (_LINES | _COUNTS)[family], count=family in _COUNTS)
    kept = Holds(LOG, (log.text,))
    partial = tuple(Level(PART, (_answer(content), kept)) for content in question.partial)
    verifier = FileState((_answer(question.answer), kept), partial)
    return Instance(family, split, seed, question.sentence, question.command, verifier, {LOG: log.text})


LOG_FIELDS = Collection(
    name="log-fields",
    about="One question about a log file",
    image="ubuntu:24.04",
    groups={"all": FAMILIES, "read": READ, "search": SEARCH},
    make=make,
)
