"""The state of every random number generator of this process, as tensors and plain containers."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch


def capture_rng() -> dict[str, Any]:
    """The states of torch (CPU and, where present, every CUDA device), `random` and numpy's legacy generator."""
    legacy = numpy.random.get_state(legacy=False)
    assert isinstance(legacy, dict)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": {
            "bit_generator": legacy["bit_generator"],
            "key": torch.tensor([int(word) for word in legacy["state"]["key"]]),
            "pos": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Put every generator back to a state from `capture_rng`; raises ValueError for another number of CUDA devices."""
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if len(state["cuda"]) != devices:
        raise ValueError(
            f"the checkpoint holds random states of {len(state['cuda'])} CUDA devices, this machine shows {devices}: "
            "resume on the same number (CUDA_VISIBLE_DEVICES)"
        )
    torch.set_rng_state(state["torch"])
    if devices:
        torch.cuda.set_rng_state_all(state["cuda"])
    random.setstate(state["python"])
    saved = state["numpy"]
    numpy.random.set_state(
        {
            "bit_generator": saved["bit_generator"],
            "state": {"key": saved["key"].numpy().astype("uint32"), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
