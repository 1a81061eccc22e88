"""Four log formats as programs write them: nginx (combined), syslog (RFC 3164), Python's logging, JSON lines.

Training and held-out logs share no address, host, program, user, file name or message. Addresses are those that
RFC 5737 sets apart for documentation.
"""

import json
import random
from dataclasses import dataclass

from tasks.words import Split


@dataclass(frozen=True)
class Vocabulary:
    """What the logs of one split may name."""

    network: str  # first three parts of the addresses
    logs: tuple[str, ...]
    targets: tuple[str, ...]
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
        logs=("access.log", "site.log", "server.log", "shop.log", "daily.log", "main.log"),
        targets=("out.txt", "found.txt", "result.txt", "values.txt", "list.txt", "fields.txt"),
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
        logs=("web.log", "front.log", "node.log", "night.log"),
        targets=("answer.txt", "picked.txt", "extract.txt", "report.txt"),
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


def _both(rng: random.Random, length: int, first: str, others: tuple[str, ...]) -> list[str]:
    """`length` draws from all, `first` among them at least twice and never all of them: a filter has work to do."""
    drawn = [first, first, rng.choice(others), *(rng.choice((first, *others)) for _ in range(length - 3))]
    rng.shuffle(drawn)
    return drawn


def nginx(rng: random.Random, words: Vocabulary, length: int) -> tuple[list[str], str]:
    """Lines in the combined format, and a status that some of them have."""
    wanted = rng.choice(words.failures)
    others = ("200", "200", *(status for status in words.failures if status != wanted))
    lines = [
        f"{words.network}.{rng.randint(1, 254)} - - [{rng.randint(1, 28):02}/{rng.choice(MONTHS)}/2026:{_clock(rng)} "
        f'+0000] "{rng.choice(("GET", "GET", "POST"))} {rng.choice(words.paths)} HTTP/1.1" {status} '
        f'{rng.randint(1000, 9999)} "-" "{rng.choice(words.clients)}"'
        for status in _both(rng, length, wanted, others)
    ]
    return lines, wanted


def syslog(rng: random.Random, words: Vocabulary, length: int) -> tuple[list[str], str]:
    """Lines of several programs on several hosts, and a program that wrote some of them."""
    messages = dict(words.programs)
    wanted = rng.choice(sorted(messages))
    others = tuple(program for program in sorted(messages) if program != wanted)
    month = rng.choice(MONTHS)
    lines = [
        f"{month} {rng.randint(10, 28)} {_clock(rng)} {rng.choice(words.hosts)} {program}[{rng.randint(300, 9999)}]: "
        f"{messages[program]}"
        for program in _both(rng, length, wanted, others)
    ]
    return lines, wanted


def traceback(rng: random.Random, words: Vocabulary, length: int) -> tuple[list[str], str]:
    """Python's logging with a traceback at its end, and the exception's name."""
    name, message = rng.choice(words.errors)
    day = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    lines = [
        f"{day} {_clock(rng)} INFO {rng.choice(words.modules)}: "
        f"{rng.choice(words.functions)} took {rng.randint(2, 99)} ms"
        for _ in range(length // 2)
    ]
    lines += [f"{day} {_clock(rng)} ERROR {rng.choice(words.modules)}: failed", "Traceback (most recent call last):"]
    for function in rng.sample(words.functions, 2):
        number = rng.randint(10, 400)
        lines += [f'  File "/srv/{rng.choice(words.modules)}.py", line {number}, in {function}', f"    {function}()"]
    return [*lines, f"{name}: {message}"], name


def json_lines(rng: random.Random, words: Vocabulary, length: int) -> tuple[list[str], str]:
    """One object a line, and a level that some of them have."""
    wanted = rng.choice(words.levels)
    others = tuple(level for level in words.levels if level != wanted)
    lines = [
        json.dumps(
            {
                "time": f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{_clock(rng)}Z",
                "level": level,
                "user": rng.choice(words.users),
                "ms": rng.randint(2, 900),
            }
        )
        for level in _both(rng, length, wanted, others)
    ]
    return lines, wanted
