import re

import pytest

from launcher.ray_jobs.cluster import Cluster
from tests.launcher.ray_jobs.ray_cluster import folder_of, ray_cluster

__all__ = ["ray_cluster"]


@pytest.fixture(scope="session")
def gcs_address(ray_cluster: Cluster) -> str:
    """host:port of the cluster's own protocol, as Ray noted it in the head's folder."""
    text = (folder_of() / "ray_current_cluster").read_text(encoding="utf-8").strip()
    assert re.fullmatch(r"[\d.]+:\d+", text)
    return text
