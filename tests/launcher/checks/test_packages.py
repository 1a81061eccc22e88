from __future__ import annotations

import sys
from pathlib import Path

from launcher.checks.packages import check_packages, is_importable
from launcher.preflight import Status


def package(root: Path, *names: str) -> Path:
    folder = root.joinpath(*names)
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('the check imports it')\n")
    return root


def test_a_package_is_found_without_being_imported(tmp_path: Path) -> None:
    package(tmp_path, "probed_package")
    package(tmp_path, "probed_package", "core")
    assert check_packages(["probed_package.core", "httpx"], [tmp_path]).status is Status.OK
    assert "probed_package" not in sys.modules


def test_a_package_that_is_not_there_fails_by_name(tmp_path: Path) -> None:
    finding = check_packages(["httpx", "not_there", "httpx.not_there"], [tmp_path])
    assert finding.status is Status.FAILURE
    assert "2 of 3" in finding.sentence
    assert "not_there, httpx.not_there" in finding.sentence and str(tmp_path) in finding.way_out


def test_a_checkout_named_like_its_package_is_not_taken_for_it(tmp_path: Path) -> None:
    package(tmp_path, "probed_checkout", "probed_checkout")
    assert not is_importable("probed_checkout", [tmp_path])
    assert is_importable("probed_checkout", [tmp_path / "probed_checkout"])


def test_a_package_below_a_folder_without_init_is_found(tmp_path: Path) -> None:
    package(tmp_path, "probed_namespace", "core")
    assert is_importable("probed_namespace.core", [tmp_path])
