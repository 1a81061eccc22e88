"""The policy's weights as the sampler, PEFT and ordinary Hugging Face code see them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from local_engine.policy import LoraSettings, Policy, Trajectory
from local_engine.prefix_tree import ATTENTION
from local_engine.pretrained import load_causal_lm
from tests.local_engine.conftest import CPU, LORA, plain_log_probs

TRAJECTORY = Trajectory(list(range(10, 30)), [1] * 8)


def test_merged_weights_equal_those_of_peft(make_policy: Callable[..., Policy], checkpoint: str) -> None:
    policy = make_policy()
    merged = dict(policy.merged_weights())
    wanted = dict(policy.model.merge_and_unload().named_parameters())
    before = dict(load_causal_lm(checkpoint, dtype=torch.float32, attention="eager", device=CPU).named_parameters())
    assert len(merged) == 2 * 7  # every linear layer but the head
    for name, weight in merged.items():
        torch.testing.assert_close(weight, wanted[name].float(), atol=1e-6, rtol=1e-6)
        assert float((weight - before[name]).detach().abs().max()) > 1e-3


def test_publishing_leaves_the_policy_alone(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    for _ in range(3):
        list(policy.merged_weights())
    assert all(torch.equal(p, before[name]) for name, p in policy.model.named_parameters())


def test_a_sampling_model_with_merged_weights_agrees_with_the_policy(
    make_policy: Callable[..., Policy], checkpoint: str
) -> None:
    policy = make_policy()
    plain = load_causal_lm(checkpoint, dtype=torch.float32, attention="eager", device=CPU).eval()
    with torch.no_grad():
        for name, weight in policy.merged_weights():
            dict(plain.named_parameters())[name].copy_(weight)
    (got,) = policy.log_probs([TRAJECTORY], 0.7)
    want = plain_log_probs(plain, list(TRAJECTORY.tokens), 0.7)[-8:]
    torch.testing.assert_close(got.detach(), want, atol=1e-4, rtol=0)


def test_the_reference_is_the_model_without_adapter(make_policy: Callable[..., Policy], plain_model: Any) -> None:
    policy = make_policy()
    want = plain_log_probs(plain_model, list(TRAJECTORY.tokens))[-8:]
    (reference,) = policy.log_probs([TRAJECTORY], 1.0, reference=True)
    (own,) = policy.log_probs([TRAJECTORY], 1.0)
    torch.testing.assert_close(reference.detach(), want, atol=1e-4, rtol=0)
    assert float((own - reference).detach().abs().max()) > 1e-2


def test_a_fresh_adapter_changes_nothing(make_policy: Callable[..., Policy], plain_model: Any) -> None:
    (got,) = make_policy(acting=False).log_probs([TRAJECTORY], 1.0)
    want = plain_log_probs(plain_model, list(TRAJECTORY.tokens))[-8:]
    torch.testing.assert_close(got.detach(), want, atol=1e-4, rtol=0)


def test_without_adapter_all_weights_but_the_embedding_are_trained(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(None)
    assert "model.embed_tokens.weight" not in policy.trainable
    assert "lm_head.weight" in policy.trainable
    assert len(policy.trainable) == 2 * 9 + 2
    with pytest.raises(ValueError, match="use LoRA"):
        policy.log_probs([TRAJECTORY], 1.0, reference=True)


def test_named_layers_get_the_adapter(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(LoraSettings(rank=4, alpha=8, dropout=0.0, targets=("q_proj", "v_proj")))
    assert {name.split(".lora_")[0].rsplit(".", 1)[1] for name in policy.trainable} == {"q_proj", "v_proj"}


def tied(folder: Path, checkpoint: str) -> str:
    """The tiny model with one matrix for embedding and head."""
    config = LlamaConfig.from_pretrained(checkpoint)
    config.tie_word_embeddings = True
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("other", ["embed_tokens", "lm_head", "self_attn", "norm", "k_proj_of_another"])
def test_no_adapter_goes_where_the_sampler_could_not_follow(other: str, checkpoint: str, tmp_path: Path) -> None:
    lora = LoraSettings(rank=4, alpha=8, dropout=0.0, targets=("q_proj", other))
    policy = Policy(tied(tmp_path, checkpoint), lora=lora, dtype=torch.float32, device=CPU)
    assert (policy.adapted, policy.not_there) == (("q_proj",), (other,))
    assert {name.split(".lora_")[0].rsplit(".", 1)[1] for name in policy.trainable} == {"q_proj"}
    sampled = dict(
        load_causal_lm(policy.checkpoint, dtype=torch.float32, attention="eager", device=CPU).named_parameters()
    )
    assert {name for name, _ in policy.merged_weights()} <= sampled.keys()


def test_a_head_of_its_own_gets_an_adapter_where_it_is_named(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(LoraSettings(rank=4, alpha=8, dropout=0.0, targets=("lm_head",)))
    assert [name for name, _ in policy.merged_weights()] == ["lm_head.weight"]


@pytest.mark.parametrize("lora", [LORA, None])
def test_the_state_comes_back_exactly(lora: LoraSettings | None, make_policy: Callable[..., Policy]) -> None:
    saved = make_policy(lora)
    with torch.no_grad():
        for parameter in saved.trainable.values():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    other = make_policy(lora, acting=False)
    other.load_state(saved.state())
    assert all(torch.equal(p, saved.trainable[name]) for name, p in other.trainable.items())


def test_a_state_of_another_shape_is_refused_by_name(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    with pytest.raises(ValueError, match=r"lora_A.* is \(8, .*in the checkpoint, \(4, .* here"):
        policy.load_state(make_policy(LoraSettings(8, 8, 0.0)).state())
    with pytest.raises(ValueError, match="trains other parameters"):
        policy.load_state(make_policy(None).state())


@pytest.mark.parametrize("lora", [LORA, None])
def test_the_exported_model_loads_in_ordinary_code(
    lora: LoraSettings | None, make_policy: Callable[..., Policy], tokenizer: Any, tmp_path: Path
) -> None:
    policy = make_policy(lora)
    policy.save_merged(tmp_path / "model", tokenizer)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    assert model.config._attn_implementation != ATTENTION
    (want,) = policy.log_probs([TRAJECTORY], 1.0)
    got = plain_log_probs(model, list(TRAJECTORY.tokens))[-8:]
    torch.testing.assert_close(got, want.detach(), atol=1e-4, rtol=0)


def test_the_saved_adapter_loads_in_peft(make_policy: Callable[..., Policy], checkpoint: str, tmp_path: Path) -> None:
    from peft import PeftModel

    policy = make_policy()
    policy.save_adapter(tmp_path)
    base = load_causal_lm(checkpoint, dtype=torch.float32, attention="eager", device=CPU)
    model = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    (want,) = policy.log_probs([TRAJECTORY], 1.0)
    torch.testing.assert_close(plain_log_probs(model, list(TRAJECTORY.tokens))[-8:], want.detach(), atol=1e-4, rtol=0)
