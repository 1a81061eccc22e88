"""What this machine computes with: device, number type, threads. Measured where guessing is wrong too often."""

import os
import time
from dataclasses import dataclass

import torch

from local_engine.config import LocalRunConfig

WORTH_IT = 1.2  # speed-up below which bfloat16 is not worth its rounding


class MachineError(ValueError):
    """The machine lacks what the options ask for."""


@dataclass(frozen=True)
class Machine:
    """Threads apply to a CPU: trials share the cores with the sampler; training has all, or what the sampler leaves."""

    device: torch.device
    dtype: torch.dtype
    sampling_threads: int
    training_threads: int
    why: str  # how the number type was chosen
    flops: float  # multiplications and additions a second, of a matrix product with all training threads


def choose_machine(config: LocalRunConfig) -> Machine:
    """Resolve `auto`; raises MachineError for a device that is not there."""
    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        raise MachineError("--device cuda: PyTorch sees no CUDA device here; leave --device out, or pass cpu")
    device = torch.device("cuda" if cuda and config.device != "cpu" else "cpu")
    cores = config.threads or len(os.sched_getaffinity(0))
    if device.type == "cuda":
        dtype, why = torch.bfloat16, "GPU"
    elif config.deterministic:
        # A measurement may come out differently on the next start; the results may not.
        dtype, why = torch.float32, "deterministic"
    else:
        ratio = _flops(torch.bfloat16, device, cores) / _flops(torch.float32, device, cores)
        dtype = torch.bfloat16 if ratio > WORTH_IT else torch.float32
        why = f"bfloat16 is {ratio:.1f} x as fast as float32 here"
    if config.dtype != "auto":
        dtype, why = getattr(torch, config.dtype), "as asked for"
    sampling = max(1, cores // 2)
    training = cores if config.asynchrony is None else max(1, cores - sampling)
    return Machine(device, dtype, sampling, training, why, _flops(dtype, device, training))


def _flops(dtype: torch.dtype, device: torch.device, threads: int) -> float:
    """Best of a few matrix products in the sizes of a small model."""
    torch.set_num_threads(threads)
    rows, inner, columns = 256, 576, 1536
    x, weight = (torch.randn(n, inner, dtype=dtype, device=device) for n in (rows, columns))
    times: list[float] = []
    for _ in range(8):
        started = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return 2 * rows * inner * columns / min(times)
