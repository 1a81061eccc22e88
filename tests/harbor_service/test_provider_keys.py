"""Keys come from files or the environment, and no sandbox sees them."""

import re
from pathlib import Path

import pytest

from harbor_service.bad_setting import BadSetting
from harbor_service.provider_keys import PROVIDER_KEYS, load_provider_keys
from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess


def test_a_key_comes_from_its_file_unless_it_is_set(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary\n")
    environ = {
        "DAYTONA_API_KEY_FILE": str(tmp_path / "key"),
        "E2B_API_KEY": "own",
        "E2B_API_KEY_FILE": str(tmp_path / "key"),
    }
    load_provider_keys(environ, "mine:Environment")
    assert environ["DAYTONA_API_KEY"] == "canary"
    assert environ["E2B_API_KEY"] == "own"


@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ("docker", set()),
        ("local", set()),
        ("daytona", {"DAYTONA_API_KEY"}),
        ("modal", {"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"}),
        ("mine:Environment", {*PROVIDER_KEYS, "HARBOR_ADMIN_SECRET"}),
    ],
)
def test_only_the_keys_of_the_provider_stay_in_the_process(environment: str, kept: set[str]) -> None:
    environ: dict[str, str] = dict.fromkeys((*PROVIDER_KEYS, "HARBOR_ADMIN_SECRET"), "canary")
    load_provider_keys(environ, environment)
    assert set(environ) == kept


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"two\nlines"])
def test_a_file_without_a_key_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(BadSetting, match="DAYTONA_API_KEY_FILE"):
        load_provider_keys({"DAYTONA_API_KEY_FILE": str(tmp_path / "key")}, "daytona")


CANARY = re.compile(rb"canary-[A-Za-z]")
SPY = r"""
env
for folder in /proc/[0-9]*; do tr '\0' '\n' <$folder/environ; tr '\0' ' ' <$folder/cmdline; cat $folder/maps; done
cat /proc/self/mountinfo /etc/* /run/* /tmp/*
grep -rIhoE 'canary-[A-Za-z_]+' / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr
true
"""


def test_no_key_of_the_servers_environment_or_files_is_seen_in_a_sandbox(
    tmp_path: Path, tasks_dir: Path, model: ModelStub
) -> None:
    """The model's command looks wherever a key could be; what it saw goes back to the model."""
    (tmp_path / "key").write_text("canary-file-modal")
    (tmp_path / "token").write_text("canary-token")
    environ = {name: f"canary-{name}" for name in (*PROVIDER_KEYS, "HARBOR_ADMIN_SECRET", "WANDB_API_KEY")}
    environ |= {"MODAL_TOKEN_ID": "", "MODAL_TOKEN_ID_FILE": str(tmp_path / "key")}
    replies = [Reply(f"```bash\n{SPY.strip()}\n```"), bash("true")]
    model.answer = lambda body: replies[min(len(model.requests), 2) - 1]
    server = AgentServerProcess(tmp_path, tasks_dir, "--token-file", str(tmp_path / "token"), environ=environ)
    try:
        options = {"end_on_success": False, "max_turns": 2, "observation_limit": 10**7, "command_timeout": 120}
        server.client.headers["Authorization"] = "Bearer canary-token"
        reply = server.run("mkdir-1", model.base_url, agent_options=options).json()
        assert reply["exit_status"] == "TurnLimitExceeded"
        seen = model.requests[1]["messages"][-1]["content"]
        assert seen.startswith("Exit code 0") and "PATH=/usr" in seen and "/proc" in seen
        assert not CANARY.search(seen.encode())
        # Nor is one in what the trial left on this machine.
        left = [path for path in server.trials_dir.rglob("*") if path.is_file()]
        assert left
        assert not [path for path in left if CANARY.search(path.read_bytes())]
        assert "canary" not in server.log
    finally:
        server.close()
