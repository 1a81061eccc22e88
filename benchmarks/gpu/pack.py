"""Packs what the machine with the GPUs has not, into archives of a size that one transfer takes.

    python -m benchmarks.gpu.pack --out FOLDER [--work FOLDER]

Two folders of packages, for two processes that agree on few versions: Miles with Ray, SGLang and Megatron, and the
agent server with Harbor. That machine has Python 3.12, PyTorch for CUDA 13 and no network; a transfer takes 64 MiB of
files. So everything is left out that the tiny model on a Hopper GPU never touches, which is most of it by size.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MOST_BYTES = 60 << 20  # of an archive; the working tree travels with it
# Kernels of other GPUs and for other attention, the dashboard's page, Java, test and benchmark code, documentation.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "miles": (
        *("sgl_kernel/flash_ops*", "sgl_kernel/flashmla_ops*", "sgl_kernel/sm100", "deep_gemm", "_mscclpp*"),
        *("lib", "lib64", "include", "triton_kernels", "bin", "share"),
        *("ray/jars", "ray/rllib", "ray/serve", "ray/llm", "ray/tune", "ray/train", "ray/dashboard/client"),
        *("ray/core/src/ray/raylet_client", "ray/cpp", "ray/scripts/*.md"),
        *("sglang/multimodal_gen", "sglang/test", "sglang/benchmark", "sglang/bench_*.py"),
        *("flashinfer/data/cutlass", "flashinfer/data/csrc", "flashinfer/data/include", "flashinfer/data/cccl"),
        *("flashinfer/data/spdlog", "torch_memory_saver_hook_mode_*_cu12*", "py_spy*", "*.a"),
    ),
    "harbor": ("bin", "harbor/viewer", "harbor/mappers/*.json", "setuptools*"),
}
# Imported at the top of a module, and never called in this run.
STUBS: dict[str, str] = {
    "mooncake/__init__.py": "",
    "mooncake/engine.py": "class TransferEngine:\n    pass\n",
    # Without a page Ray's job server does not start.
    "ray/dashboard/client/build/index.html": "",
    "ray/dashboard/client/build/static/empty": "",
    "IPython/__init__.py": "def get_ipython():\n    return None\n",
    "IPython/display.py": "HTML = str\n\n\ndef display(*parts):\n    print(*parts)\n",
}
# The preloaded library is the one for CUDA 12 under the name that Miles looks for.
RENAMED = {"torch_memory_saver_hook_mode_preload_cu13.abi3.so": "torch_memory_saver_hook_mode_preload.abi3.so"}
PROGRAMS = ("ray/core/src/ray/raylet/raylet", "ray/core/src/ray/gcs/gcs_server")
ARCHIVES: dict[str, tuple[str, ...]] = {
    "large": ("miles/ray", "miles/sgl_kernel", "miles/sglang_router"),
    "small": ("miles", "harbor"),
}


def run(*command: str, cwd: Path | None = None) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, cwd=cwd, check=True)


def install(name: str, folder: Path) -> None:
    """Exactly the packages of a list, none of their dependencies."""
    platform = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34")
    # Links into uv's cache would let `strip` change the files of every environment that was made from it.
    own_files = ("--link-mode", "copy")
    requirements = str(HERE / "requirements" / f"{name}.txt")
    run(
        *(str(ROOT / "scripts" / "uv"), "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
        *platform,
        *own_files,
        *("--target", str(folder), "-r", requirements),
    )


def leave_out(folder: Path, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)


def complete(folder: Path) -> None:
    """What no list names: stand-ins, the right preloaded library, libnuma, and programs without their symbols."""
    for name, text in STUBS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for source, target in RENAMED.items():
        shutil.copy2(folder / source, folder / target)
    libraries = folder / "_lib"
    download = folder.parent / "deb"
    download.mkdir(exist_ok=True)
    run("apt-get", "download", "-qq", "libnuma1", cwd=download)
    for package in download.glob("libnuma1_*.deb"):
        run("dpkg", "-x", package.name, "unpacked", cwd=download)
    libraries.mkdir(exist_ok=True)
    (source,) = download.glob("unpacked/usr/lib/*/libnuma.so.1.*")
    shutil.copy2(source, libraries / "libnuma.so.1")
    shared = (path for path in folder.rglob("*.so*") if path.is_file() and not path.is_symlink())
    for path in (*shared, *(folder / name for name in PROGRAMS)):
        subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)


def archive(work: Path, out: Path, name: str, parts: Sequence[str], without: Sequence[str]) -> None:
    """Raises ValueError where the archive is too large for one call."""
    path = out / f"{name}.tar.xz"
    excluded = [f"--exclude={part}" for part in without]
    run("tar", "-C", str(work), "--anchored", *excluded, "-I", "xz -6 -T2", "-cf", str(path), *parts)
    size = path.stat().st_size
    print(f"{path}: {size / 2**20:.1f} MiB", flush=True)
    if size > MOST_BYTES:
        raise ValueError(f"{path} has {size} bytes, a transfer takes {MOST_BYTES}; move a part to another archive")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pack", description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--work", type=Path, help="folder of the unpacked packages (<out>/work)")
    options = parser.parse_args(argv)
    work: Path = options.work or options.out / "work"
    options.out.mkdir(parents=True, exist_ok=True)
    for name, patterns in LEFT_OUT.items():
        shutil.rmtree(work / name, ignore_errors=True)
        install(name, work / name)
        leave_out(work / name, patterns)
    complete(work / "miles")
    done: list[str] = []
    for name, parts in ARCHIVES.items():
        archive(work, options.out, name, parts, done)
        done += parts
    return 0


if __name__ == "__main__":
    sys.exit(main())
