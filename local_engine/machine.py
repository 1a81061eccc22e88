"""What this machine computes with: device, number type, threads. Measured where guessing is wrong too often."""

import os
import time
from dataclasses import dataclass

import torch

from local_engine.config import LocalRunConfig


class MachineError(ValueError):
    """The machine lacks what the options ask for."""


@dataclass(frozen=True)
class Machine:
    """Threads apply to a CPU: trials share the cores with the sampler, while training nothing else runs."""

    device: torch.device
    dtype: torch.dtype
    sampling_threads: int
    training_threads: int
    why: str  # how the number type was chosen


def choose_machine(config: LocalRunConfig) -> Machine:
    """Resolve `auto`; raises MachineError for a device that is not there."""
    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        raise MachineError("--device cuda: PyTorch sees no CUDA device here; leave --device out, or pass cpu")
    device = torch.device("cuda" if cuda and config.device != "cpu" else "cpu")
    cores = config.threads or len(os.sched_getaffinity(0))
    if config.dtype != "auto":
        dtype, why = getattr(torch, config.dtype), "as asked for"
    elif device.type == "cuda":
        dtype, why = torch.bfloat16, "GPU"
    elif config.deterministic:
        # A measurement may come out differently on the next start; the results may not.
        dtype, why = torch.float32, "deterministic"
    else:
        ratio = _bfloat16_speed(cores)
        dtype = torch.bfloat16 if ratio > 1.2 else torch.float32
        why = f"bfloat16 is {ratio:.1f} x as fast as float32 here"
    return Machine(device, dtype, max(1, cores // 2), cores, why)


def _bfloat16_speed(threads: int) -> float:
    """Speed of bfloat16 matrix products against float32, best of a few in the sizes of a small model."""
    torch.set_num_threads(threads)
    best: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, weight = torch.randn(256, 576, dtype=dtype), torch.randn(1536, 576, dtype=dtype)
        times: list[float] = []
        for _ in range(6):
            started = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            times.append(time.perf_counter() - started)
        best[dtype] = min(times)
    return best[torch.float32] / best[torch.bfloat16]
