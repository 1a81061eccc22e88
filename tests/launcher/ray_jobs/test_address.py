from pathlib import Path

import pytest

from launcher.errors import OptionsError, PreflightError
from launcher.ray_jobs.address import existing_cluster
from launcher.ray_jobs.client import connect
from launcher.ray_jobs.cluster import Cluster
from tests.launcher.checks.endless_server import HEAD, endless_server
from tests.launcher.checks.http_answers import http_answers

EXTERNAL = {"MILES_SCRIPT_EXTERNAL_RAY": "1"}


@pytest.mark.parametrize(
    ("given", "environment", "address"),
    [
        (None, {}, None),
        (None, EXTERNAL, "http://127.0.0.1:8265"),
        (None, {"MILES_SCRIPT_EXTERNAL_RAY": "true"}, "http://127.0.0.1:8265"),
        (None, {"MILES_SCRIPT_EXTERNAL_RAY": "0"}, None),
        ("http://head:8265/", EXTERNAL, "http://head:8265"),
        ("https://ray.example.org/cluster", {}, "https://ray.example.org/cluster"),
        ("head:6379", {}, "head:6379"),
        ("[::1]:6379", {}, "[::1]:6379"),
        ("auto", {}, "auto"),
        ("local", EXTERNAL, None),
    ],
)
def test_the_option_goes_before_the_flag_of_the_environment(
    given: str | None, environment: dict[str, str], address: str | None
) -> None:
    assert existing_cluster(given, environment) == address


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("ray://head:10001", "http://HOST:8265"),
        ("redis://head:6379", "redis://"),
        ("head", "names no port"),
        ("head:http", "not an address"),
        ("head:0", "not an address"),
        ("http://", "not an address"),
        ("http://head:8265 --x", "not an address"),
    ],
)
def test_an_address_that_takes_no_jobs_is_refused_with_the_way_out(given: str, reason: str) -> None:
    with pytest.raises(OptionsError, match=reason):
        existing_cluster(given, {})


@pytest.mark.parametrize("given", ["http://me:canary@head:8265", "me:canary@head:6379"])
def test_a_password_in_the_address_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(OptionsError, match="user or password") as refused:
        existing_cluster(given, {})
    assert "canary" not in str(refused.value)


def test_every_form_leads_to_the_job_server(ray_cluster: Cluster, gcs_address: str) -> None:
    dashboard = ray_cluster.address.removeprefix("http://")
    for form in (ray_cluster.address, dashboard, gcs_address):
        assert connect(form).address == ray_cluster.address


def test_auto_is_the_cluster_that_was_started_last_on_this_machine(
    ray_cluster: Cluster, gcs_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    noted = tmp_path / "ray" / "ray_current_cluster"  # as `ray start` leaves it in /tmp/ray
    noted.parent.mkdir()
    noted.write_text(gcs_address, encoding="utf-8")
    assert connect("auto").address == ray_cluster.address


def test_the_address_given_holds_whatever_the_environment_says(
    ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert connect(ray_cluster.address).address == ray_cluster.address


def test_a_proxy_is_not_asked_for_this_machine(ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert connect(ray_cluster.address).address == ray_cluster.address


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "127.0.0.1:9"])
def test_where_nothing_answers_the_error_names_the_address_and_the_way_out(address: str) -> None:
    with pytest.raises(PreflightError, match=r"127\.0\.0\.1:9.*--ray-address"):
        connect(address)


def test_another_server_than_rays_is_refused_by_what_it_answers() -> None:
    with http_answers({"*": (200, "hello")}) as answers:
        for address in (answers.url, answers.url.removeprefix("http://")):
            with pytest.raises(PreflightError, match=r"Ray job server.*--ray-address"):
                connect(address)


@pytest.mark.parametrize(("first", "piece"), [(b"SSH-2.0-OpenSSH_9.6\r\n", b""), (b"", b""), (HEAD, b" ")])
def test_a_server_that_speaks_no_http_or_never_ends_an_answer_is_left_in_time(
    first: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.ray_jobs.client._CONNECT_SECONDS", 0.3)
    with endless_server(first, piece, 0.01) as address, pytest.raises(PreflightError, match="is not Ray"):
        connect(address)
