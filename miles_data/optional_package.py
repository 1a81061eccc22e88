"""Packages that only some sources need, imported when they are needed."""

import importlib
from typing import Any

from miles_data.findings import DataError


def optional_package(module: str, package: str, purpose: str) -> Any:
    """The module. Raises DataError that names the package where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(f"{purpose} needs the package {package}, which is not installed: pip install {package}") from (
            error
        )
