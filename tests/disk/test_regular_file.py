from __future__ import annotations

from pathlib import Path

import pytest

from disk.regular_file import read_regular
from disk.token_file import read_token


def test_a_device_without_end_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(Path("/dev/zero"))
    (tmp_path / "large").write_bytes(b"12345")
    assert read_regular(tmp_path / "large", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "large", 4)


def test_a_token_is_one_line_of_printable_ascii(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" s3cret\n")
    assert read_token(file) == "s3cret"
    for other in (b"", b" \n", b"two\nlines", "schlüssel".encode(), b"\xff"):
        file.write_bytes(other)
        with pytest.raises(ValueError, match=f"{file} holds no token"):
            read_token(file)
