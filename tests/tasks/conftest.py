"""Harbor reads these when it is imported: nothing is sent or fetched from a test."""

import os

os.environ["HARBOR_TELEMETRY"] = "0"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
