"""Options, order and tables of benchmarks/local_engine.py."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
import transformers
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.parts import sampling, updates
from benchmarks.parts.samples import Workload, made_samples, read_samples
from local_engine.grpo import GrpoSettings
from local_engine.policy import LoraSettings
from local_engine.pretrained import checkpoint_folder, load_tokenizer


@dataclass
class Options:
    """Defaults are those of `run.py --engine local`."""

    hf_checkpoint: str | None = None
    """Model folder or id; the packaged SmolLM2-135M-Instruct when not given."""
    batch_sizes: tuple[int, ...] = (8, 16, 32)
    """Sequences sampled at once, 8 to a prompt."""
    new_tokens: int = 48
    """Tokens sampled for each sequence."""
    prompts: int = 6
    """Groups in an update; 8 trajectories each."""
    train_dump: Path | None = None
    """Take the update's trajectories from this train dump (train_data/<id>_0.pt) of a run."""
    trl_micro_batches: tuple[int, ...] = (8, 24)
    """Trajectories per backward pass to try for TRL; the fastest counts."""
    repeats: int = 3
    """Measurements of each, after one that does not count."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights and arithmetic on both sides, the adapter is float32 on both; `run.py` prints what it takes here."""
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 0
    """CPU threads; 0 = all cores this process may use."""
    skip_sampling: bool = False
    skip_updates: bool = False
    json: Path | None = None
    """Also write the figures here."""


def main(description: str) -> None:
    options = tyro.cli(Options, description=description)
    threads = options.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    folder = checkpoint_folder(options.hf_checkpoint)
    tokenizer = load_tokenizer(folder)
    device = torch.device(options.device)
    dtype = getattr(torch, options.dtype)
    report: dict[str, object] = {
        "checkpoint": Path(folder).name,
        "dtype": options.dtype,
        "device": options.device,
        "threads": threads,
        "load_at_start": os.getloadavg()[0],
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    console = Console()
    console.print(f"{Path(folder).name}, {options.dtype} on {options.device}, {threads} threads", highlight=False)

    workload = Workload(folder, tokenizer, dtype, device)
    if not options.skip_sampling:
        rows: list[sampling.Row] = []
        for size in options.batch_sizes:
            rows.append(sampling.compare(workload, size, options.new_tokens, options.repeats))
            console.print(f"  batch {size}: {rows[-1].ratio:.2f}x", highlight=False)
        report["sampling"] = [asdict(row) | {"ratio": row.ratio} for row in rows]
        console.print(sampling_table(rows, options.new_tokens))
    if not options.skip_updates:
        groups = read_samples(options.train_dump) if options.train_dump else made_samples(workload, options.prompts)
        settings = GrpoSettings(
            lr=3e-4,
            warmup_steps=0,
            eps_clip=0.2,
            eps_clip_high=0.28,
            kl_loss_coef=0.0,
            weight_decay=0.0,
            max_grad_norm=1.0,
            temperature=0.7,
        )
        lora = LoraSettings(rank=16, alpha=32, dropout=0.0)
        result = updates.compare(workload, groups, lora, settings, options.trl_micro_batches, options.repeats)
        report["update"] = asdict(result)
        console.print(update_table(result))
        if result.trl_version is None:
            console.print(
                "TRL is not installed, so the update is compared with nothing. To compare:\n"
                "  uv run --with trl python benchmarks/local_engine.py"
            )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def sampling_table(rows: list[sampling.Row], new_tokens: int) -> Table:
    table = Table(title=f"Sampling {new_tokens} tokens each, tokens per second", title_justify="left")
    for name in ("batch", "local engine", "transformers generate", "ratio"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row.batch),
            f"{row.ours_tokens_per_second:.0f}",
            f"{row.generate_tokens_per_second:.0f}",
            f"{row.ratio:.2f}x",
        )
    return table


def update_table(result: updates.Result) -> Table:
    table = Table(
        title=f"One update on {result.trajectories} trajectories, {result.trained_tokens} trained of "
        f"{result.tokens} tokens",
        title_justify="left",
    )
    for name in ("", "seconds", "gradient norm", "ratio"):
        table.add_column(name, justify="right")
    table.add_row("local engine", f"{result.ours_seconds:.2f}", f"{result.ours_grad_norm:.4f}", "")
    for variant in result.trl:
        table.add_row(
            f"TRL {result.trl_version}, {variant.micro_batch} per pass",
            f"{variant.seconds:.2f}",
            f"{variant.grad_norm:.4f}",
            f"{variant.seconds / result.ours_seconds:.2f}x",
        )
    return table
