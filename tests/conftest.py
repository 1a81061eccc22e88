"""Before any test imports Ray or Harbor, which read these once."""

import os

# Below `uv run` Ray would send this whole folder to its workers and start them through uv.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
# Nothing is sent or fetched from a test.
os.environ["HARBOR_TELEMETRY"] = "0"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
