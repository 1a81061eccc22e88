"""What a run computes with."""

from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine import machine
from local_engine.config import LocalRunConfig
from local_engine.machine import MachineError, choose_machine
from tests.end_to_end.run_parts import base_config, change


def config(**values: Any) -> LocalRunConfig:
    return change(base_config(Path("run"), Path("model"), Path("tasks"), Path("rows")), Path("run"), **values)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MachineError, match="--device cuda"):
        choose_machine(config(device="cuda"))
    assert choose_machine(config(device="auto")).device.type == "cpu"


@pytest.mark.parametrize(("ratio", "dtype"), [(1.1, torch.float32), (3.0, torch.bfloat16)])
def test_bfloat16_is_taken_where_it_is_measured_to_be_faster(
    ratio: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_flops", lambda dtype, *_: ratio if dtype == torch.bfloat16 else 1.0)
    chosen = choose_machine(config(dtype="auto", deterministic=False))
    assert chosen.dtype == dtype
    assert f"{ratio:.1f}" in chosen.why


def test_a_deterministic_run_does_not_depend_on_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_flops", lambda dtype, *_: 99.0 if dtype == torch.bfloat16 else 1.0)
    assert choose_machine(config(dtype="auto", deterministic=True)).dtype == torch.float32
    assert choose_machine(config(dtype="bfloat16", deterministic=True)).dtype == torch.bfloat16


def test_threads_are_those_asked_for() -> None:
    chosen = choose_machine(config(threads=6))
    assert (chosen.training_threads, chosen.sampling_threads) == (6, 3)
    assert choose_machine(config(threads=1)).sampling_threads == 1


def test_the_measurement_is_quick_and_positive() -> None:
    assert machine._flops(torch.float32, torch.device("cpu"), 1) > 1e6
