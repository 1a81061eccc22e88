import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from launcher.errors import ExitCode
from launcher.ray_jobs.client import connect
from launcher.ray_jobs.cluster import Cluster
from launcher.ray_jobs.follow import LogFollower
from launcher.ray_jobs.job import follow, stop, submit
from tests.launcher.ray_jobs.cutting_proxy import CuttingProxy
from tests.launcher.ray_jobs.ray_cluster import job


class Watched(io.StringIO):
    """Calls back once when a text has come by."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted: list[tuple[str, Callable[[], None]]] = []

    def when(self, text: str, call: Callable[[], None]) -> None:
        self._wanted.append((text, call))

    def write(self, text: str, /) -> int:
        count = super().write(text)
        for wanted in list(self._wanted):
            if wanted[0] in self.getvalue():
                self._wanted.remove(wanted)
                wanted[1]()
        return count


@pytest.mark.parametrize("websockets", [True, False])
def test_a_connection_cut_in_mid_log_costs_no_line_and_repeats_none(ray_cluster: Cluster, websockets: bool) -> None:
    """Long enough to be followed by the stream, where something on the way lets one through."""
    spec = job({"STAND_IN_LINES": "60", "STAND_IN_LINE_SLEEP": "0.03", "STAND_IN_WIDTH": "3000"})
    submit(ray_cluster, spec)
    out = Watched()
    with CuttingProxy(ray_cluster.address, without_websockets=not websockets) as proxy:
        for line in ("line 0 ", "line 30 "):
            out.when(line, proxy.cut)
        assert follow(Cluster(proxy.address, owned=False), spec.submission_id, out) == ExitCode.SUCCEEDED
    assert out.getvalue() == connect(ray_cluster.address).log(spec.submission_id)
    assert "line 59 " in out.getvalue()


@pytest.mark.long
def test_a_log_that_ray_cannot_read_does_not_keep_the_verdict_back(
    ray_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = job({"STAND_IN_BYTES": "ff"})
    submit(ray_cluster, spec)
    assert follow(ray_cluster, spec.submission_id, io.StringIO()) == ExitCode.SUCCEEDED
    assert "without it" in capsys.readouterr().err


@pytest.mark.long
def test_a_cluster_that_stays_away_ends_the_following_with_the_cause(
    ray_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = job({"STAND_IN_LINES": "1", "STAND_IN_SLEEP": "600"})
    submit(ray_cluster, spec)
    out = Watched()
    with CuttingProxy(ray_cluster.address) as proxy, ThreadPoolExecutor() as pool:
        out.when("line 0", proxy.close)
        following = pool.submit(follow, Cluster(proxy.address, owned=False), spec.submission_id, out, patience=1.0)
        assert following.result() == ExitCode.FAILED
        assert f"{proxy.address} has not answered" in capsys.readouterr().err
    stop(ray_cluster, spec.submission_id)


def test_the_following_can_be_given_an_end(ray_cluster: Cluster) -> None:
    spec = job({"STAND_IN_SLEEP": "600"})
    submit(ray_cluster, spec)
    follower = LogFollower(ray_cluster, connect(ray_cluster.address), spec.submission_id, io.StringIO())
    with pytest.raises(TimeoutError):
        follower.until_end(0.1)
    stop(ray_cluster, spec.submission_id)
    assert follower.until_end().status == "STOPPED"


def test_a_job_that_ray_does_not_know_is_lost(ray_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(ray_cluster, "never-submitted", io.StringIO()) == ExitCode.FAILED
    assert "does not know the job" in capsys.readouterr().err
