"""Packed layers compute what plain ones do, with the weights of the last `pack`."""

import torch
from torch import nn

from local_engine.packed_linear import MOST_ROWS, PackedLinear, pack_linears, packing_helps

CPU = torch.device("cpu")


def test_only_bfloat16_on_a_cpu_is_packed() -> None:
    assert not packing_helps(CPU, torch.float32)
    assert not packing_helps(torch.device("cuda"), torch.bfloat16)


def test_few_rows_and_many_rows_give_the_product_of_the_plain_layer() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(64, 96, dtype=torch.bfloat16)
    packed = PackedLinear(plain)
    if packing_helps(CPU, torch.bfloat16):
        packed.pack()
    with torch.inference_mode():
        for shape in ((1, 1, 64), (1, 48, 64), (1, MOST_ROWS + 1, 64)):
            x = torch.randn(shape, dtype=torch.bfloat16)
            torch.testing.assert_close(packed(x), plain(x), atol=2e-2, rtol=2e-2)


def test_a_changed_weight_counts_after_the_next_pack() -> None:
    plain = nn.Linear(32, 32, bias=False, dtype=torch.bfloat16)
    model = nn.Sequential(plain)
    layers = pack_linears(model) if packing_helps(CPU, torch.bfloat16) else []
    with torch.no_grad():
        plain.weight.fill_(1.0)
        for layer in layers:
            layer.pack()
        assert float(model(torch.ones(1, 32, dtype=torch.bfloat16))[0, 0]) == 32.0


def test_every_linear_layer_keeps_its_very_parameters() -> None:
    if not packing_helps(CPU, torch.bfloat16):
        return
    model = nn.ModuleDict({"a": nn.Linear(8, 8, dtype=torch.bfloat16), "b": nn.Sequential(nn.Linear(8, 4).bfloat16())})
    before = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    assert len(pack_linears(model)) == 2
    assert {name: parameter.data_ptr() for name, parameter in model.named_parameters()} == before
