"""Sends what a session server sends to one SGLang engine: straight, and through the Rust router.

    python -m benchmarks.gpu.router --model FOLDER

Prints a line for each way: HTTP status, and whether the answer has the meta_info that a session server needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

ENGINE, RUST = 33000, 33100
START_SECONDS = 90.0
_ENGINE_OPTIONS = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none"),
    *("--mem-fraction-static", "0.1", "--disable-cuda-graph", "--disable-piecewise-cuda-graph"),
    *("--disable-shared-experts-fusion", "--moe-runner-backend", "triton", "--context-length", "4096"),
    *("--tool-call-parser", "glm47", "--reasoning-parser", "glm45"),
)


def request(model: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    messages = [{"role": "user", "content": "Make a directory called src."}]
    tokenizer = AutoTokenizer.from_pretrained(model)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return {
        "model": "model",
        "messages": messages,
        "input_ids": tokenizer.encode(text, add_special_tokens=False),
        "logprobs": True,
        "return_meta_info": True,
        "no_stop_trim": False,
        "max_tokens": 32,
        "temperature": 0.8,
        "stop_regex": ["(?s)```.*?```"],
    }


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Raises TimeoutError, or RuntimeError where the process ended."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"what should answer at {url} ended with code {process.returncode}")
        try:
            if httpx.get(url, timeout=2).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise TimeoutError(f"nothing answers at {url} after {START_SECONDS:g} s")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="router", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True, help="folder of the checkpoint")
    options = parser.parse_args(argv)
    engine, rust = f"http://127.0.0.1:{ENGINE}", f"http://127.0.0.1:{RUST}"
    commands = {
        engine: ["sglang.launch_server", "--model-path", str(options.model), "--host", "127.0.0.1", "--port",
                 str(ENGINE), *_ENGINE_OPTIONS],
        rust: ["sglang_router.launch_router", "--worker-urls", engine, "--host", "127.0.0.1", "--port", str(RUST)],
    }  # fmt: skip
    body = json.dumps(request(options.model))
    with ExitStack() as ending:
        for url, command in commands.items():
            process = subprocess.Popen([sys.executable, "-m", *command])
            ending.callback(process.wait)
            ending.callback(process.terminate)
            wait_for(f"{url}/health", process)
        for url in commands:
            name = "straight to the engine" if url == engine else "through the Rust router"
            reply = httpx.post(f"{url}/v1/chat/completions", content=body, timeout=60,
                               headers={"Content-Type": "application/json"})  # fmt: skip
            found = "meta_info" in reply.json().get("choices", [{}])[0]
            print(f"router: {name}: {reply.status_code}, meta_info {'there' if found else 'missing'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
