"""STUB of sglang-router: Miles reads only its version, the package is 90 MB of native code."""

__version__ = "0.3.2"
