"""What is wrong with the data, where, and how often."""

from collections import Counter
from dataclasses import dataclass, field

SHOWN = 20


@dataclass(frozen=True)
class Finding:
    """One broken rule. `place` is `line 7` or the name of a task folder; `rule` is short and counted."""

    place: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.text}"


class BadRow(Exception):
    """A row breaks a rule. Whoever knows the row's place turns it into a Finding."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule, self.text = rule, text

    def at(self, place: str) -> Finding:
        return Finding(place, self.rule, self.text)


@dataclass
class Findings:
    """Keeps the first 20 and counts all, so that a file of a million bad rows costs no memory."""

    shown: list[Finding] = field(default_factory=list[Finding])
    counts: Counter[str] = field(default_factory=Counter[str])

    def add(self, finding: Finding) -> None:
        self.counts[finding.rule] += 1
        if len(self.shown) < SHOWN:
            self.shown.append(finding)

    @property
    def total(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        lines = [f"  {finding}" for finding in self.shown]
        if self.total > len(self.shown):
            lines.append(f"  and {self.total - len(self.shown)} more")
        if len(self.counts) > 1 or self.total > len(self.shown):
            lines.append("  in all: " + ", ".join(f"{count} {rule}" for rule, count in self.counts.most_common()))
        return "\n".join(lines)


class DataError(Exception):
    """Data or options that cannot be used as they are; the message says what to do."""


class BadRows(DataError):
    """At least one row broke a rule. `findings` holds the first of them and all counts."""

    def __init__(self, what: str, findings: Findings, note: str = "") -> None:
        super().__init__("\n".join(filter(None, (what, str(findings), note))))
        self.findings = findings
