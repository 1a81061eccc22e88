from pathlib import Path

import pytest

from harbor_service.provider_keys import load_provider_keys
from harbor_service.settings import BadSetting


def test_a_key_comes_from_its_file_unless_it_is_set(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary\n")
    environ = {
        "DAYTONA_API_KEY_FILE": str(tmp_path / "key"),
        "E2B_API_KEY": "own",
        "E2B_API_KEY_FILE": str(tmp_path / "key"),
    }
    load_provider_keys(environ)
    assert environ["DAYTONA_API_KEY"] == "canary"
    assert environ["E2B_API_KEY"] == "own"


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"two\nlines"])
def test_a_file_without_a_key_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(BadSetting, match="DAYTONA_API_KEY_FILE"):
        load_provider_keys({"DAYTONA_API_KEY_FILE": str(tmp_path / "key")})
