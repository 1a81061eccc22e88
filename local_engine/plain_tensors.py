"""Tensors in plain containers: what `torch.save` writes and `torch.load(weights_only=True)` opens anywhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import torch


def save_tensors(value: object, file: BinaryIO) -> None:
    """`torch.save` into an open file; a failed write surfaces as the OSError that caused it.

    Raises TypeError, naming the place, for a value that `torch.load(weights_only=True)` would refuse.
    """
    require_plain(value)
    writer = _ErrorKeepingWriter(file)
    try:
        torch.save(value, cast(Any, writer))
    except RuntimeError as error:
        # PyTorch's archive writer replaces the OSError of the file below it by a RuntimeError without a cause.
        if writer.error is None:
            raise
        raise writer.error from error


class _ErrorKeepingWriter(io.RawIOBase):
    def __init__(self, file: BinaryIO) -> None:
        self.error: OSError | None = None
        self._write: Callable[[Any], int] = file.write
        self._flush: Callable[[], None] = file.flush

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        try:
            return self._write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        if self.error is None and not self.closed:
            self._flush()


def compact(value: Any) -> Any:
    """The same containers with every tensor detached, on the CPU and alone in its storage.

    A slice saved as it is takes its whole storage to the disk, and a CUDA tensor cannot be read without a GPU.
    """
    if isinstance(value, torch.Tensor):
        tensor = value.detach().to("cpu").contiguous()
        if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone()
        return tensor
    if type(value) is dict:
        return {key: compact(item) for key, item in cast("dict[Any, Any]", value).items()}
    if type(value) is list:
        return [compact(item) for item in cast("list[Any]", value)]
    if type(value) is tuple:
        return tuple(compact(item) for item in cast("tuple[Any, ...]", value))
    return value


_PLAIN = (str, int, float, bool, type(None), torch.Tensor)


def require_plain(value: object, place: str = "value") -> None:
    """Raise TypeError, naming the place, unless `value` is made of tensors, dict, list, tuple, str and numbers only.

    Subclasses are refused too: a StrEnum or a numpy number pickles as its class, which `weights_only` does not load.
    """
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            require_plain(key, f"a key of {place}")
            require_plain(item, f"{place}[{key!r}]")
    elif kind in (list, tuple):
        for index, item in enumerate(cast("list[object]", value)):
            require_plain(item, f"{place}[{index}]")
    else:
        raise TypeError(
            f"{place} is a {kind.__module__}.{kind.__qualname__}; a file that opens with weights_only=True holds only "
            "tensors, dict, list, tuple, str, int, float, bool and None: convert it first"
        )
