"""The tiny checkpoint, and models and samplers made from it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from local_engine import kv_cache
from local_engine.policy import LoraSettings, Policy
from local_engine.pretrained import load_causal_lm, load_tokenizer
from local_engine.sampler import Sampler
from tests.local_engine.tiny_model import make_checkpoint

CPU = torch.device("cpu")
LORA = LoraSettings(rank=4, alpha=8, dropout=0.0)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Untrained, two layers, two query heads to a key head."""
    return str(make_checkpoint(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="session")
def tokenizer(checkpoint: str) -> Any:
    return load_tokenizer(checkpoint)


@pytest.fixture(scope="session")
def plain_model(checkpoint: str) -> Any:
    """The same weights under the library's own attention: what everything else is compared with."""
    return load_causal_lm(checkpoint, dtype=torch.float32, attention="eager", device=CPU).eval()


@pytest.fixture
def make_sampler(checkpoint: str, tokenizer: Any) -> Callable[..., Sampler]:
    def make(slots: int = 4, end_tokens: tuple[int, ...] = ()) -> Sampler:
        model = load_causal_lm(checkpoint, dtype=torch.float32, attention=kv_cache.ATTENTION, device=CPU)
        return Sampler(model, tokenizer, slots=slots, end_tokens=end_tokens, device=CPU)

    return make


@pytest.fixture
def make_policy(checkpoint: str) -> Callable[..., Policy]:
    """With LoRA the adapter's second factor is made random: as initialised it is zero and changes nothing."""

    def make(lora: LoraSettings | None = LORA, *, acting: bool = True) -> Policy:
        torch.manual_seed(1)
        policy = Policy(checkpoint, lora=lora, dtype=torch.float32, device=CPU)
        if acting:
            with torch.no_grad():
                for name, parameter in policy.trainable.items():
                    if "lora_B" in name:
                        parameter.normal_(std=0.1)
        return policy

    return make


def plain_log_probs(model: Any, tokens: list[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of tokens[1:], one sequence at a time through the library's own forward."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, :-1].float()
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


@pytest.fixture
def merged_model(make_policy: Callable[..., Policy], checkpoint: str) -> tuple[Policy, Any]:
    """A policy with an adapter that acts, and the plain model with it merged in."""
    policy = make_policy()
    model: Any = load_causal_lm(checkpoint, dtype=torch.float32, attention="eager", device=CPU).eval()
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in policy.merged_weights():
            own[name].copy_(weight)
    return policy, model
