"""The families: a sentence, the files it speaks about, a solution, and what counts as done.

`make(family, split, seed)` is a pure function: the same three values give the same instance on every machine. One rule
holds for all verifiers beside what the sentence asks: a file that the sentence does not ask to change stays as it was.

Partial credit is given by the harder families only, and only where the folder is written with it. What it pays:

| family  | reward | state                                                                             |
|---------|--------|-----------------------------------------------------------------------------------|
| mkdirs  | 0.5    | the outer directory is there                                                      |
| write   | 0.2    | the file is there with another text                                               |
| append  | 0.3    | something else was added after the old content                                    |
| delext  | 0.5    | one of the two files is gone, all others untouched                                |
| count   | 0.3    | the counts of words or bytes, or all three of them                                |
| sort    | 0.5    | the lines in falling order                                                        |
| sort    | 0.2    | the lines in their old order                                                      |
| head    | 0.5    | another number of first lines                                                     |
| grep    | 0.5    | the right lines with line numbers or the file's name                              |
| grep    | 0.2    | the other lines, all lines, or how many lines match                               |
| replace | 0.5    | only the first place, or the first of each line, or another spelling of XYZ       |
| concat  | 0.5    | both contents, in the wrong order                                                 |
| concat  | 0.3    | only one of the two contents                                                      |

Each is a state of the files that doing nothing does not give, below the reward of a full solution.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tasks.collection import Collection
from tasks.instance import Instance, validate_place
from tasks.verifier import (
    Condition,
    Extends,
    FileState,
    Holds,
    IsFile,
    IsFolder,
    Level,
    Missing,
    OwnerMayExecute,
    Separate,
)
from tasks.words import VOCABULARIES, Split

EASY = ("mkdir", "rename", "copy", "move", "delete", "chmod")
HARD = ("mkdirs", "write", "append", "delext", "count", "sort", "head", "grep", "replace", "concat")
FAMILIES = EASY + HARD


@dataclass(frozen=True)
class _Draw:
    """The random parts of an instance, drawn in one fixed order so that families stay comparable."""

    family: str
    split: Split
    seed: int
    names: tuple[str, str, str]  # file stems
    words: tuple[str, str]
    folders: tuple[str, str]
    ending: str
    lines: tuple[str, ...]  # 4 to 9 lines of two words, newline included
    first: int  # how many lines `head` asks for

    @property
    def texts(self) -> tuple[str, str, str]:
        a, b, c = self.names
        return f"{a}.txt", f"{b}.txt", f"{c}.txt"

    @property
    def body(self) -> str:
        return "".join(self.lines)

    def text(self, number: int) -> str:
        """A text for each of several files: equal ones would let a file that replaced another pass for it."""
        return self.body + f"{self.words[0]}\n" * number

    def instance(
        self,
        instruction: str,
        solution: str,
        done: tuple[Condition, ...],
        files: Mapping[str, str] | None = None,
        folders: tuple[str, ...] = (),
        partial: tuple[Level, ...] = (),
    ) -> Instance:
        verifier = FileState(done, partial)
        return Instance(self.family, self.split, self.seed, instruction, solution, verifier, dict(files or {}), folders)


def _draw(family: str, split: Split, seed: int) -> _Draw:
    vocabulary = VOCABULARIES[split]
    rng = random.Random(f"{family}/{split}/{seed}")
    a, b, c = rng.sample(vocabulary.files, 3)
    word, other = rng.sample(vocabulary.words, 2)
    outer, inner = rng.sample(vocabulary.folders, 2)
    ending = rng.choice(vocabulary.endings)
    lines = tuple(f"{rng.choice(vocabulary.words)} {rng.choice(vocabulary.words)}\n" for _ in range(rng.randint(4, 9)))
    return _Draw(family, split, seed, (a, b, c), (word, other), (outer, inner), ending, lines, rng.randint(1, 3))


def _same(path: str, content: str) -> Holds:
    return Holds(path, (content,))


def _one_line(path: str, text: str) -> Holds:
    """A file of one line; the newline at its end is optional, since the sentences do not speak of it."""
    return Holds(path, (text + "\n", text))


def _mkdir(d: _Draw) -> Instance:
    folder, _ = d.folders
    return d.instance(f"Make a directory called {folder}.", f"mkdir {folder}", (IsFolder(folder),))


def _rename(d: _Draw) -> Instance:
    old, new, _ = d.texts
    return d.instance(
        f"Rename the file {old} to {new}.",
        f"mv {old} {new}",
        (_same(new, d.body), Missing(old)),
        files={old: d.body},
    )


def _copy(d: _Draw) -> Instance:
    old, new, _ = d.texts
    return d.instance(
        f"Copy the file {old} to {new}.",
        f"cp {old} {new}",
        (_same(new, d.body), _same(old, d.body), Separate(old, new)),
        files={old: d.body},
    )


def _move(d: _Draw) -> Instance:
    name, folder = d.texts[0], d.folders[0]
    return d.instance(
        f"Move the file {name} into the directory {folder}.",
        f"mv {name} {folder}/",
        (IsFolder(folder), _same(f"{folder}/{name}", d.body), Missing(name)),
        files={name: d.body},
        folders=(folder,),
    )


def _delete(d: _Draw) -> Instance:
    name, kept, _ = d.texts
    return d.instance(
        f"Delete the file {name}. Keep all other files.",
        f"rm {name}",
        (Missing(name), _same(kept, d.text(1))),
        files={name: d.body, kept: d.text(1)},
    )


def _chmod(d: _Draw) -> Instance:
    name = f"{d.names[0]}.sh"
    return d.instance(
        f"Make the script {name} executable.",
        f"chmod +x {name}",
        (_same(name, "echo hi\n"), OwnerMayExecute(name)),
        files={name: "echo hi\n"},
    )


def _mkdirs(d: _Draw) -> Instance:
    outer, inner = d.folders
    return d.instance(
        f"Make a directory called {outer} with a directory called {inner} inside it.",
        f"mkdir -p {outer}/{inner}",
        (IsFolder(outer), IsFolder(f"{outer}/{inner}")),
        partial=(Level(0.5, (IsFolder(outer),)),),
    )


def _write(d: _Draw) -> Instance:
    name, word = d.texts[0], d.words[0]
    return d.instance(
        f"Create a file called {name} that contains the word {word}.",
        f"echo {word} > {name}",
        (_one_line(name, word),),
        partial=(Level(0.2, (IsFile(name),)),),
    )


def _append(d: _Draw) -> Instance:
    name, word = d.texts[0], d.words[0]
    return d.instance(
        f"Append a line with the word {word} to the file {name}.",
        f"echo {word} >> {name}",
        (_one_line(name, d.body + word),),
        files={name: d.body},
        partial=(Level(0.3, (Extends(name, d.body),)),),
    )


def _delext(d: _Draw) -> Instance:
    first, second = f"{d.names[0]}.{d.ending}", f"{d.names[1]}.{d.ending}"
    kept = d.texts[2]
    one_left: tuple[Level, ...] = (
        Level(0.5, (Missing(first), _same(second, d.text(1)), _same(kept, d.text(2)))),
        Level(0.5, (_same(first, d.body), Missing(second), _same(kept, d.text(2)))),
    )
    return d.instance(
        f"Delete all files that end in .{d.ending}. Keep all other files.",
        f"rm *.{d.ending}",
        (Missing(first), Missing(second), _same(kept, d.text(2))),
        files={first: d.body, second: d.text(1), kept: d.text(2)},
        partial=one_left,
    )


def _count(d: _Draw) -> Instance:
    source, target, _ = d.texts
    lines, words, size = len(d.lines), 2 * len(d.lines), len(d.body)
    # `wc` pads each number to the width of the largest.
    all_three = " ".join(str(number).rjust(len(str(size))) for number in (lines, words, size))
    wrong = tuple(f"{text}{name}\n" for text in (str(words), str(size), all_three) for name in ("", f" {source}"))
    return d.instance(
        f"Count the lines of {source} and write the number to {target}.",
        f"wc -l < {source} > {target}",
        # `wc -l FILE` adds the file's name, and the sentence leaves room for that.
        (Holds(target, (f"{lines}\n", f"{lines}", f"{lines} {source}\n")), _same(source, d.body)),
        files={source: d.body},
        partial=(Level(0.3, (Holds(target, wrong), _same(source, d.body))),),
    )


def _sort(d: _Draw) -> Instance:
    source, target, _ = d.texts
    rising = sorted(d.lines)
    kept = _same(source, d.body)
    return d.instance(
        f"Sort the lines of {source} and write them to {target}.",
        f"LC_ALL=C sort {source} > {target}",
        (_same(target, "".join(rising)), kept),
        files={source: d.body},
        partial=(
            Level(0.5, (_same(target, "".join(reversed(rising))), kept)),
            Level(0.2, (_same(target, d.body), kept)),
        ),
    )


def _head(d: _Draw) -> Instance:
    source, target, _ = d.texts
    kept = _same(source, d.body)
    others = tuple("".join(d.lines[:count]) for count in range(1, len(d.lines) + 1) if count != d.first)
    return d.instance(
        f"Write the first {d.first} lines of {source} to {target}.",
        f"head -n {d.first} {source} > {target}",
        (_same(target, "".join(d.lines[: d.first])), kept),
        files={source: d.body},
        partial=(Level(0.5, (Holds(target, others), kept)),),
    )


def _grep(d: _Draw) -> Instance:
    source, target, _ = d.texts
    word, other = d.words
    lines = (*d.lines, f"{word} {other}\n")
    found = [(number, line) for number, line in enumerate(lines, 1) if word in line]
    kept = _same(source, "".join(lines))
    marked = ("".join(f"{number}:{line}" for number, line in found), "".join(f"{source}:{line}" for _, line in found))
    wrong = ("".join(line for line in lines if word not in line), "".join(lines), f"{len(found)}\n")
    return d.instance(
        f"Find the lines of {source} that contain the word {word} and write them to {target}.",
        f"grep {word} {source} > {target}",
        (_same(target, "".join(line for _, line in found)), kept),
        files={source: "".join(lines)},
        partial=(Level(0.5, (Holds(target, marked), kept)), Level(0.2, (Holds(target, wrong), kept))),
    )


def _replace(d: _Draw) -> Instance:
    name = d.texts[0]
    word, other = d.words
    lines = (*d.lines, f"{word} {other}\n")
    old = "".join(lines)
    near = (
        old.replace(word, "XYZ", 1),
        "".join(line.replace(word, "XYZ", 1) for line in lines),
        old.replace(word, "xyz"),
        old.replace(word, "Xyz"),
    )
    return d.instance(
        f"Replace the word {word} with the word XYZ in the file {name}.",
        f"sed -i s/{word}/XYZ/g {name}",
        (_same(name, old.replace(word, "XYZ")),),
        files={name: old},
        partial=(Level(0.5, (Holds(name, near),)),),
    )


def _concat(d: _Draw) -> Instance:
    first, second, target = d.texts
    tail = f"{d.words[0]}\n"
    kept: tuple[Condition, ...] = (_same(first, d.body), _same(second, tail))
    return d.instance(
        f"Join the files {first} and {second} into one file called {target}.",
        f"cat {first} {second} > {target}",
        (_same(target, d.body + tail), *kept),
        files={first: d.body, second: tail},
        partial=(
            Level(0.5, (_same(target, tail + d.body), *kept)),
            Level(0.3, (Holds(target, (d.body, tail)), *kept)),
        ),
    )


_MAKERS: dict[str, Callable[[_Draw], Instance]] = {
    "mkdir": _mkdir,
    "rename": _rename,
    "copy": _copy,
    "move": _move,
    "delete": _delete,
    "chmod": _chmod,
    "mkdirs": _mkdirs,
    "write": _write,
    "append": _append,
    "delext": _delext,
    "count": _count,
    "sort": _sort,
    "head": _head,
    "grep": _grep,
    "replace": _replace,
    "concat": _concat,
}


def make(family: str, split: Split, seed: int) -> Instance:
    """The instance of these three values. Raises UnknownFamily for a family or split that does not exist."""
    validate_place(FAMILIES, family, split, seed)
    return _MAKERS[family](_draw(family, split, seed))


TERMINAL_BASICS = Collection(
    name="terminal-basics",
    about="One small job in a shell",
    image="ubuntu:24.04",
    groups={"easy": EASY, "hard": HARD, "all": FAMILIES},
    make=make,
)
