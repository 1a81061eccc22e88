"""Agent server: one Harbor trial for each `POST /run`, judged by the table in `trajectory.exit_status`.

Importing this package is cheap (standard library only); the modules that import Harbor are loaded where needed.
"""

import os
from collections.abc import Mapping
from typing import Final

# Read by Harbor and LiteLLM while they are imported: without them a server start sends usage data and
# fetches a price list, which hangs on a machine without a way out.
QUIET_ENVIRONMENT: Final[Mapping[str, str]] = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
for _name, _value in QUIET_ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

__version__ = "0.1.0"
