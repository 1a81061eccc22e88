"""Linear layers with weights laid out for oneDNN: a decode step's few rows are bound by reading the weights.

PyTorch lays a bfloat16 weight out anew at every call; done once per change of weights, the product is 1.5 to 3 times
as fast for up to some fifty rows. These are the operators that torch.compile uses for frozen weights.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# PyTorch has no types for its operators.

from typing import Any

import torch
from torch import Tensor, nn

MOST_ROWS = 128  # above, the plain product is as fast


class PackedLinear(nn.Module):
    """Stands in for an nn.Linear in inference; `weight` and `bias` are the very parameters of the layer it replaces."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        self._packed: Any = None

    def pack(self) -> None:
        """Take over the current weight; to be called after every change of it."""
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        if self._packed is None or x.numel() // x.shape[-1] > MOST_ROWS:
            return nn.functional.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")


def packing_helps(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this PyTorch and processor compute bfloat16 with oneDNN."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def pack_linears(model: nn.Module) -> list[PackedLinear]:
    """Replace every nn.Linear of `model`, the output head included, and pack them."""
    packed: list[PackedLinear] = []
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                replacement = PackedLinear(child)
                setattr(module, name, replacement)
                packed.append(replacement)
    for layer in packed:
        layer.pack()
    return packed
