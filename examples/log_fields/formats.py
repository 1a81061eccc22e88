"""Four log formats as programs write them: nginx (combined), syslog (RFC 3164), Python's logging, JSON lines.

Training and held-out logs share no address, path, host, program, user or message. Addresses are those that
RFC 5737 sets apart for documentation.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.words import Split


@dataclass(frozen=True)
class Vocabulary:
    """What the logs of one split may name."""

    network: str  # first three parts of the addresses
    paths: tuple[str, ...]
    failures: tuple[str, ...]  # status codes
    clients: tuple[str, ...]
    hosts: tuple[str, ...]
    programs: tuple[tuple[str, str], ...]  # name and message
    users: tuple[str, ...]
    modules: tuple[str, ...]
    functions: tuple[str, ...]
    errors: tuple[tuple[str, str], ...]  # exception and message
    levels: tuple[str, ...]


VOCABULARIES: dict[Split, Vocabulary] = {
    "train": Vocabulary(
        network="203.0.113",
        paths=("/index.html", "/login", "/cart", "/style.css", "/search?q=shoes", "/img/logo.png", "/blog/post-7"),
        failures=("404", "500", "301", "503"),
        clients=("curl/8.5.0", "Mozilla/5.0 (X11; Linux x86_64)", "python-requests/2.32.3"),
        hosts=("web1", "web2", "mail", "gateway", "build7"),
        programs=(
            ("sshd", "Accepted publickey for deploy from 203.0.113.9 port 41822 ssh2"),
            ("cron", "(root) CMD (run-parts /etc/cron.hourly)"),
            ("nginx", "signal process started"),
            ("dockerd", "container 4f2a exited with code 0"),
            ("kernel", "eth0: link is up, 1000 Mbps"),
        ),
        users=("ann", "bob", "carla", "dmitri", "eve", "farid"),
        modules=("orders", "payment", "worker", "importer"),
        functions=("main", "load", "handle_request", "save_all"),
        errors=(
            ("KeyError", "'user_id'"),
            ("ValueError", "invalid literal for int() with base 10: 'n/a'"),
            ("ZeroDivisionError", "division by zero"),
            ("FileNotFoundError", "[Errno 2] No such file or directory: 'prices.csv'"),
        ),
        levels=("error", "info", "debug"),
    ),
    "test": Vocabulary(
        network="198.51.100",
        paths=("/home", "/api/v2/users", "/favicon.ico", "/docs/setup.html", "/tags?sort=new"),
        failures=("403", "502", "410"),
        clients=("Wget/1.21.4", "Go-http-client/2.0"),
        hosts=("db3", "proxy", "cache9"),
        programs=(
            ("postfix", "connect from unknown, 198.51.100.77"),
            ("systemd", "Started Daily apt download activities."),
            ("ntpd", "time stepped by 0.214 s"),
        ),
        users=("greta", "hugo", "ines", "jonas"),
        modules=("billing", "crawler"),
        functions=("start", "fetch_page", "parse_row"),
        errors=(
            ("TypeError", "unsupported operand type(s) for +: 'int' and 'str'"),
            ("IndexError", "list index out of range"),
            ("ConnectionRefusedError", "[Errno 111] Connection refused"),
        ),
        levels=("warning", "notice", "trace"),
    ),
}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"


def _some(rng: random.Random, wanted: str, others: tuple[str, ...], length: int) -> list[str]:
    """`length` draws, `wanted` among them at least twice and never all of them: a filter has work to do."""
    drawn = [wanted, wanted, rng.choice(others), *(rng.choice((wanted, *others)) for _ in range(length - 3))]
    rng.shuffle(drawn)
    return drawn


@dataclass(frozen=True)
class Log:
    """Lines; the fields of the last one; and `wanted`, which some lines have: those that hold `pattern`."""

    lines: tuple[str, ...]
    fields: Mapping[str, str]
    wanted: str
    pattern: str

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def nginx(rng: random.Random, words: Vocabulary, length: int) -> Log:
    """The combined format; wanted is a status."""
    wanted = rng.choice(words.failures)
    lines: list[str] = []
    fields: dict[str, str] = {}
    for status in _some(rng, wanted, ("200", *(other for other in words.failures if other != wanted)), length):
        fields = {
            "address": f"{words.network}.{rng.randint(1, 254)}",
            "time": f"{rng.randint(1, 28):02}/{rng.choice(MONTHS)}/2026:{_clock(rng)} +0000",
            "path": rng.choice(words.paths),
            "status": status,
            "size": str(rng.randint(1000, 9999)),
            "client": rng.choice(words.clients),
        }
        request = f"{rng.choice(('GET', 'POST'))} {fields['path']} HTTP/1.1"
        lines.append(
            f'{fields["address"]} - - [{fields["time"]}] "{request}" {status} {fields["size"]} "-" "{fields["client"]}"'
        )
    return Log(tuple(lines), fields, wanted, f" {wanted} ")


def syslog(rng: random.Random, words: Vocabulary, length: int) -> Log:
    """Several programs on several hosts; wanted is a program."""
    messages = dict(words.programs)
    wanted = rng.choice(tuple(messages))
    day = f"{rng.choice(MONTHS)} {rng.randint(10, 28)}"
    lines: list[str] = []
    fields: dict[str, str] = {}
    for program in _some(rng, wanted, tuple(name for name in messages if name != wanted), length):
        fields = {"time": _clock(rng), "host": rng.choice(words.hosts), "program": program}
        process = f"{program}[{rng.randint(300, 9999)}]"
        lines.append(f"{day} {fields['time']} {fields['host']} {process}: {messages[program]}")
    return Log(tuple(lines), fields, wanted, f" {wanted}[")


def python(rng: random.Random, words: Vocabulary, length: int) -> Log:
    """Python's logging with a traceback at its end; wanted is the word File."""
    name, message = rng.choice(words.errors)
    day, failing, calling = f"2026-{rng.randint(1, 12):02}-{rng.randint(10, 28)}", *rng.sample(words.functions, 2)
    lines = [
        *(
            f"{day} {_clock(rng)} INFO {rng.choice(words.modules)}: {calling} took {rng.randint(2, 99)} ms"
            for _ in range(length)
        ),
        f"{day} {_clock(rng)} ERROR {rng.choice(words.modules)}: {calling} failed",
        "Traceback (most recent call last):",
    ]
    for function in (calling, failing):
        place = f'  File "/srv/{rng.choice(words.modules)}.py", line {rng.randint(10, 400)}, in {function}'
        lines += [place, f"    {function}()"]
    return Log((*lines, f"{name}: {message}"), {"exception": name, "message": message}, "File", "File")


def json_lines(rng: random.Random, words: Vocabulary, length: int) -> Log:
    """One object a line; wanted is a level."""
    wanted = rng.choice(words.levels)
    day = f"2026-{rng.randint(1, 12):02}-{rng.randint(10, 28)}"
    lines: list[str] = []
    fields: dict[str, str] = {}
    for level in _some(rng, wanted, tuple(other for other in words.levels if other != wanted), length):
        fields = {"time": f"{day}T{_clock(rng)}Z", "level": level, "user": rng.choice(words.users)}
        lines.append(json.dumps({**fields, "ms": rng.randint(2, 900)}))
    return Log(tuple(lines), fields, wanted, f'"{wanted}"')
