"""The page of a run in a real headless browser, which tests/browser.py installs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from progress.html_page import render_page, write_page
from progress.page_samples import PageSettings
from progress.read_run import read_run
from progress.run_report import Finding, Kind, RunReport
from tests.browser import headless_browser, note_events
from tests.progress.test_plot import run, step
from tests.progress.written_run import CONTROL, SCRIPT, SEEN_CONTROL, write_run

PATIENCE = 60_000  # milliseconds: the machine may be busy
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with headless_browser() as started:
        yield started


@dataclass
class Shown:
    """An open page that notes what it asks for and says."""

    page: Page
    requested: list[str] = field(default_factory=list[str])
    said: list[str] = field(default_factory=list[str])

    def open(self, path: Path, address: str = "") -> Page:
        self.page.goto(path.as_uri() + address)
        return self.page

    def check_nothing_ran(self) -> None:
        assert self.page.evaluate("window.planted") is None
        assert self.page.locator("img").count() == 1
        assert self.page.locator("iframe, form, object, embed").count() == 0
        assert self.page.locator("script").count() == 2
        assert {url.partition("#")[0].partition(":")[0] for url in self.requested} <= {"file", "data"}
        assert len({url for url in self.requested if url.startswith("file:")}) <= 2
        assert not self.said


@pytest.fixture
def shown(browser: Browser) -> Iterator[Shown]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    result = Shown(page)
    note_events(page, result.requested, result.said)
    yield result
    page.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    """Of a run of four rollouts, of which rollout 2 is missing."""
    return read_run(write_run(tmp_path_factory.mktemp("runs") / "run <b>", [0, 1, 3], said=f"{SCRIPT} {CONTROL}"))


@pytest.fixture(scope="module")
def written(report: RunReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that run."""
    path = tmp_path_factory.mktemp("page") / "run.html"
    write_page(path, report)
    return path


def test_a_person_sees_the_verdict_the_picture_the_table_and_what_was_found(shown: Shown, written: Path) -> None:
    page = shown.open(written)
    expect(page.locator("h1")).to_have_text("run <b>")
    expect(page.locator("#verdict strong")).to_have_text(re.compile("ADVANCING|STALLED|FINISHED"))
    assert page.locator("#picture").evaluate("image => image.naturalWidth") == 1200
    expect(page.locator("#steps tbody tr")).to_have_count(3)
    expect(page.locator("#steps tbody tr td:first-child")).to_have_text(["3", "1", "0"])
    expect(page.locator("#exit-statuses tbody tr")).to_contain_text(["Submitted"])
    expect(page.locator("#findings tbody")).to_contain_text("gap")
    expect(page.locator("#left-out")).to_contain_text("24 of 24 trajectories")
    shown.check_nothing_ran()


def test_a_trajectory_is_chosen_with_the_keyboard(shown: Shown, written: Path) -> None:
    page = shown.open(written)
    facts = page.locator("#trajectory dl")
    expect(facts).to_contain_text("task-0")
    page.locator("#step").focus()
    page.keyboard.press("Home")
    expect(facts).to_contain_text("0 of group 0")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    expect(facts).to_contain_text("1 of group 0")
    page.keyboard.press("Tab")
    expect(page.locator("#previous")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(facts).to_contain_text("2 of group 0")
    expect(page.locator("#sample")).to_have_value("2")
    page.locator("#steps a", has_text="3").focus()
    page.keyboard.press("Enter")
    expect(facts).to_contain_text("3000 of group 6")
    expect(page.locator("#trajectory")).to_be_focused()
    shown.check_nothing_ran()


def test_previous_and_next_walk_through_all_rollouts(shown: Shown, written: Path) -> None:
    page = shown.open(written, "#step=0&sample=7")
    expect(page.locator("#trajectory dl")).to_contain_text("7 of group 1")
    page.locator("#next").click()
    expect(page.locator("#trajectory dl")).to_contain_text("1000 of group 2")
    page.locator("#previous").click()
    expect(page.locator("#trajectory dl")).to_contain_text("7 of group 1")
    for _ in range(7):
        page.locator("#previous").click()
    expect(page.locator("#previous")).to_be_disabled()
    shown.check_nothing_ran()


def test_what_models_and_commands_wrote_is_shown_as_text(shown: Shown, written: Path) -> None:
    page = shown.open(written)
    said = f"{SCRIPT} {SEEN_CONTROL}"
    expect(page.locator("#trajectory .assistant pre")).to_contain_text(said)
    expect(page.locator("#trajectory .command pre").last).to_contain_text(f"mv a '{said}")
    expect(page.locator("#trajectory .verifier pre")).to_contain_text(f"the verifier says {said}")
    shown.check_nothing_ran()


def test_what_got_into_the_page_could_neither_run_nor_send(shown: Shown, written: Path) -> None:
    page = shown.open(written)
    refused = page.evaluate(
        """async () => {
            const script = document.createElement('script');
            try { script.textContent = 'window.planted = 3'; document.body.append(script); } catch (error) {}
            let markup = 'set';
            try { document.body.innerHTML = '<b>'; } catch (error) { markup = error.name; }
            const sent = await fetch('https://example.invalid/').then(() => 'sent', (error) => error.name);
            return [markup, sent];
        }"""
    )
    assert refused == ["TypeError", "TypeError"]
    assert page.evaluate("window.planted") is None
    assert not [url for url in shown.requested if url.startswith("http")]


def test_the_page_is_dark_where_the_reader_wants_it_dark(browser: Browser, written: Path) -> None:
    grounds: dict[str, str] = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(written.as_uri())
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        source = page.locator("#picture").evaluate("image => image.currentSrc")
        grounds[scheme] += source[-200:]
        page.close()
    assert grounds["light"].startswith("rgb(255, 255, 255)")
    assert grounds["dark"].startswith("rgb(21, 23, 26)")
    assert grounds["light"][-200:] != grounds["dark"][-200:]


def test_outputs_without_end_are_cut_and_the_page_says_what_was_cut(shown: Shown, tmp_path: Path) -> None:
    output = "\0" * 1_000_000 + "y" * 1_000_000
    traces = write_run(tmp_path / "run", [0], groups=1, size=2, said="\0" * 3_000, output=output)
    write_page(tmp_path / "run.html", read_run(traces))
    content = (tmp_path / "run.html").read_bytes()
    assert len(content) < 2 << 20
    assert b"\0" not in content
    page = shown.open(tmp_path / "run.html")
    text = page.locator("#trajectory pre").nth(2).text_content() or ""
    assert "\n[... 1,992,021 characters left out ...]\nyyy" in text
    shown.check_nothing_ran()


def test_a_page_that_would_be_too_large_leaves_trajectories_out_and_says_so(
    report: RunReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("progress.page_samples._PAGE_BYTES", 10_000)
    write_page(tmp_path / "run.html", report)
    found = re.search(
        r"(\d+) of 24 trajectories, of (\d) of 3 rollouts, are on this page", (tmp_path / "run.html").read_text()
    )
    assert found is not None
    assert 1 <= int(found[1]) < 24
    assert "More would make it larger than" in (tmp_path / "run.html").read_text()


def test_tables_without_end_are_cut_and_the_page_says_what_was_cut(tmp_path: Path) -> None:
    endless = replace(
        run(*(step(n) for n in range(5_000)), folder=str(tmp_path / "gone")),
        exit_statuses={f"status {n} {SCRIPT}": 1 for n in range(5_000)},
        findings=tuple(Finding(Kind.UNREADABLE, n, "x" * 100_000) for n in range(500)),
    )
    page = render_page(endless)
    assert len(page) < 6_000_000
    assert "2,000 earlier rollouts are left out." in page
    assert "4,800 more are left out." in page
    assert "300 more are left out; --json has them all." in page
    assert "No readable trajectories of rollout 4999, 0, " in page
    assert SCRIPT not in page


def test_chosen_rollouts_are_shown_whole_and_a_missing_one_is_named(
    shown: Shown, report: RunReport, tmp_path: Path
) -> None:
    write_page(tmp_path / "run.html", report, PageSettings(samples=1, rollouts=(0, 7)))
    page = shown.open(tmp_path / "run.html")
    expect(page.locator("#step option")).to_have_text(["0 (8 of 8 trajectories)"])
    expect(page.locator("#left-out")).to_contain_text("8 of 24 trajectories")
    expect(page.locator("#left-out")).to_contain_text("No readable trajectories of rollout 7.")
    shown.check_nothing_ran()


def test_a_folder_without_data_has_a_page_that_says_so(shown: Shown, tmp_path: Path) -> None:
    write_page(tmp_path / "run.html", read_run(tmp_path / "nothing"))
    page = shown.open(tmp_path / "run.html")
    expect(page.locator("#verdict")).to_contain_text("NO DATA")
    expect(page.locator("#chooser")).to_be_hidden()
    shown.check_nothing_ran()


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "run.html").mkdir()
    with pytest.raises(OSError, match="run"):
        write_page(tmp_path / "run.html", read_run(tmp_path))
    assert [item.name for item in tmp_path.iterdir()] == ["run.html"]
