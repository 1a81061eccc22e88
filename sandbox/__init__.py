"""Sandboxes for trials on this machine: `sandbox.environment:LocalEnvironment` for Harbor, `preflight()` before."""

from sandbox.bubblewrap import SandboxUnavailable, find_bwrap
from sandbox.leftovers import remove_leftovers
from sandbox.limits import Limits, SandboxLimitExceeded
from sandbox.preflight import preflight
from sandbox.trial import Sandbox

__all__ = [
    "Limits",
    "Sandbox",
    "SandboxLimitExceeded",
    "SandboxUnavailable",
    "find_bwrap",
    "preflight",
    "remove_leftovers",
]
