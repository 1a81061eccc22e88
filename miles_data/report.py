"""What a conversion or a check did, as the table that closes it."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from miles_data.findings import SHOWN, Findings
from miles_data.prompt_lengths import PromptLengths
from miles_data.rows import Skipped


@dataclass
class Report:
    """`read` = `written` + all of `skipped` + all of `rejected`.

    Of the output's rows `kept` were there before (`--append`); `replaced` of those gave way to a new one.
    """

    output: Path
    lengths: PromptLengths
    read: int = 0
    written: int = 0
    kept: int = 0
    replaced: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    rejected: Findings = field(default_factory=Findings)
    rejected_file: Path | None = None
    listed: list[Skipped] = field(default_factory=list[Skipped])
    notes: list[str] = field(default_factory=list[str])
    max_seq_len: int | None = None
    written_label: str = "written"

    def skip(self, item: Skipped) -> None:
        self.skipped[item.reason.partition(":")[0]] += 1
        if item.listed and len(self.listed) < SHOWN:
            self.listed.append(item)

    def __str__(self) -> str:
        rows = [("read", self.read), (self.written_label, self.written)]
        rows += [("kept from before", self.kept)] if self.kept else []
        rows += [("replaced from before", self.replaced)] if self.replaced else []
        rows += [(f"left out, {reason}", count) for reason, count in self.skipped.most_common()]
        rows += [(f"rejected, {rule}", count) for rule, count in self.rejected.counts.most_common()]
        if self.written:
            unit = self.lengths.unit
            rows += [(f"prompt {unit}, p50", self.lengths.quantile(0.5)), ("p95", self.lengths.quantile(0.95))]
            rows += [("max", self.lengths.quantile(1))]
            if self.max_seq_len is not None:
                rows.append((f"longer than {self.max_seq_len} {unit}", self.lengths.above(self.max_seq_len)))
        name_width = max(len(name) for name, _ in rows)
        count_width = max(len(f"{count:,}") for _, count in rows)
        lines = [str(self.output), *(f"  {name:{name_width}}  {count:{count_width},}" for name, count in rows)]
        lines += [f"  {item.place}: {item.reason}" for item in self.listed]
        if self.rejected.total:
            lines += [f"rejected rows, with reasons: {self.rejected_file}", str(self.rejected)]
        return "\n".join(lines + self.notes)
