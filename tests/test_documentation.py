"""README and docs say nothing that is not so."""

import re

import pytest

from tests.documentation import ROOT, is_printed, pages

TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
CODE = re.compile(r"`([^`]+)`")


def documented() -> list[str]:
    """The messages in the first column of the tables."""
    rows = [line for line in TROUBLESHOOTING.read_text().splitlines() if line.startswith("| `")]
    return [message for row in rows for message in CODE.findall(row.split(" | ")[0])]


@pytest.mark.parametrize("message", documented())
def test_a_documented_message_is_one_that_the_code_prints(message: str) -> None:
    assert is_printed(message)


def test_a_message_that_nobody_prints_is_noticed() -> None:
    assert not is_printed("the ... flux capacitor is ... empty")


def test_links_lead_to_files_and_headings() -> None:
    broken: list[str] = []
    for page in pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            other = (page.parent / name) if name else page
            if not other.exists() or (heading and heading not in anchors(other.read_text())):
                broken.append(f"{page.name}: {target}")
    assert not broken


def anchors(page: str) -> set[str]:
    """Of the headings, as Markdown renderers make them."""
    headings = (line.lstrip("#").strip().lower() for line in page.splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}
