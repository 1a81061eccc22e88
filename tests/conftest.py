"""Before any test imports Ray, which reads this once."""

import os

# Below `uv run` Ray would send this whole folder to its workers and start them through uv.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
