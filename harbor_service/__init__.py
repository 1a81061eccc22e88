"""Agent server: one Harbor trial for each `POST /run`, judged by the table in `trajectory.exit_status`.

Importing this package is cheap (standard library only); the modules that import Harbor are loaded where needed.
"""

import os

# Read by Harbor and LiteLLM while they are imported: without them a server start sends usage data and
# fetches a price list, which hangs on a machine without a way out.
os.environ.setdefault("HARBOR_TELEMETRY", "0")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

__version__ = "0.1.0"
