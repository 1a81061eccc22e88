"""A secret of the server's, from a file that may be changed while the server runs."""

import logging
import os
import time
from pathlib import Path
from typing import Final

from disk.token_file import read_token
from harbor_service.bad_setting import BadSetting

_logger = logging.getLogger(__name__)
# The trainer's copy of the file cannot change in the same moment.
_OVERLAP_SECONDS: Final = 600.0


class Secret:
    """One text that callers must show; see `accepted`."""

    def __init__(self, value: str) -> None:
        self._value = value

    def accepted(self) -> list[str]:
        """What a caller may show now, the present one first."""
        return [self._value]


class SecretFile(Secret):
    """The text of a file, read again when the file changes; the one before is taken for ten minutes more."""

    def __init__(self, source: str, path: str) -> None:
        """`source` names the setting in messages. Raises BadSetting for a file without a secret."""
        self._path = Path(path)
        self._source = source
        self._stamp = self._look()
        self._before: tuple[str, float] | None = None  # and the monotonic time until which it is taken
        super().__init__(self._read())

    def accepted(self) -> list[str]:
        stamp = self._look()
        if stamp != self._stamp and stamp is not None:
            self._stamp = stamp
            self._reread()
        if self._before is not None and time.monotonic() < self._before[1]:
            return [self._value, self._before[0]]
        return [self._value]

    def _reread(self) -> None:
        try:
            value = self._read()
        except BadSetting as error:  # half written: it changes once more
            _logger.warning("%s; the secret before stays", error)
            return
        if value != self._value:
            self._before, self._value = (self._value, time.monotonic() + _OVERLAP_SECONDS), value
            _logger.info("%s: a new secret was read; the one before is taken for ten minutes more", self._source)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:  # being replaced
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _read(self) -> str:
        try:
            return read_token(self._path)
        except OSError as error:
            raise BadSetting(f"{self._source}: cannot read {self._path}: {error}") from error
        except ValueError as error:
            raise BadSetting(f"{self._source}: {error}") from error
