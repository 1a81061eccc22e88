"""A sampled token's log-probability is that of an ordinary forward pass, whatever shared a pass or a cache with it."""

import math
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from local_engine.sampler import Generation, Sampler, SamplingParams, sample
from tests.local_engine.conftest import plain_log_probs

TRUNK = [10 + n % 90 for n in range(40)]


def turn(
    session: str, tokens: list[int], *, new: int = 6, temperature: float = 0.7, seed: int | None = None, **rules: Any
) -> Generation:
    stream = random.Random(session if seed is None else seed)
    return Generation(session, list(tokens), SamplingParams(temperature, new, **rules), stream)


def finish(sampler: Sampler) -> list[Generation]:
    done: list[Generation] = []
    for _ in range(2000):
        if not sampler.busy:
            return done
        done += sampler.step()
    raise AssertionError("the sampler does not come to an end")


def assert_exact(model: Any, *generations: Generation) -> None:
    for g in generations:
        assert len(g.ids) == len(g.log_probs) > 0
        want = plain_log_probs(model, g.tokens + g.ids, g.params.temperature or 1.0)[-len(g.ids) :]
        torch.testing.assert_close(torch.tensor(g.log_probs), want, atol=1e-4, rtol=0)


PROMPTS = {
    "shared trunk": [[*TRUNK, n, n + 1] for n in (100, 120, 140)],
    "groups below a trunk": [[*TRUNK, *range(g, g + 12)] for g in (100, 150) for _ in range(2)],
    "nothing shared": [[20, 21, 22], [30, 31], [40]],
    "identical": [[*TRUNK, 100]] * 4,
    "one a prefix of another": [TRUNK, [*TRUNK, 7, 8], [*TRUNK, 7, 8, 9, 10]],
    "alone": [[*TRUNK, 5]],
}


@pytest.mark.parametrize("slots", [1, 2, 4, 16])
@pytest.mark.parametrize("name", PROMPTS)
def test_log_probs_are_exact(name: str, slots: int, make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    """One slot: turns wait for each other. Sixteen: the rows that decode are gathered from a few of many."""
    sampler = make_sampler(slots)
    turns = [turn(f"s{n}", tokens) for n, tokens in enumerate(PROMPTS[name])]
    for g in turns:
        sampler.add(g)
    assert {id(g) for g in finish(sampler)} == {id(g) for g in turns}
    assert_exact(plain_model, *turns)


def test_turns_join_and_leave_while_others_decode(make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    sampler, draw = make_sampler(3), random.Random(0)
    turns: list[Generation] = []
    for n in range(12):
        prompt = TRUNK[: draw.choice([0, 20, 40])] + [draw.randrange(10, 200) for _ in range(draw.randint(1, 9))]
        turns.append(turn(f"s{n}", prompt, new=draw.randint(1, 9), temperature=draw.choice([0.0, 0.7, 1.3])))
        sampler.add(turns[-1])
        for _ in range(draw.randrange(4)):
            for done in sampler.step():
                sampler.close(done.session)
    finish(sampler)
    assert_exact(plain_model, *turns)


def test_later_turns_compute_only_what_is_new(make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    sampler = make_sampler(4)
    histories = {f"s{n}": [*TRUNK, 100 + n] for n in range(3)}
    for number in range(3):
        before = sampler.tokens_computed
        turns = [turn(name, tokens, seed=number, new=5) for name, tokens in histories.items()]
        for g in turns:
            sampler.add(g)
        finish(sampler)
        assert_exact(plain_model, *turns)
        prompts = len(TRUNK) + 3 if number == 0 else 3 * (1 + 4)  # the last sampled token has no keys yet
        assert sampler.tokens_computed - before == prompts + 3 * 4
        histories = {g.session: [*g.tokens, *g.ids, 60, 61, 62, 63] for g in turns}


def test_a_group_of_one_prompt_computes_it_once(make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    """Another prompt keeps the group's own part out of the trunk."""
    sampler = make_sampler(8)
    group = [turn(f"a{n}", [*TRUNK, *range(100, 150)], new=1) for n in range(4)]
    other = turn("b", [*TRUNK, 200], new=1)
    for g in [*group, other]:
        sampler.add(g)
    finish(sampler)
    assert_exact(plain_model, *group, other)
    assert sampler.tokens_computed == len(TRUNK) + 50 + 3 * 1 + 1


def test_more_sessions_than_slots_lose_the_cache_and_not_the_result(
    make_sampler: Callable[..., Sampler], plain_model: Any
) -> None:
    sampler = make_sampler(2)
    turns = [turn(f"s{n}", [*TRUNK, 100 + n]) for n in range(5)]
    for number in range(2):
        for g in turns:
            sampler.add(g)
        finish(sampler)
        assert_exact(plain_model, *turns)
        turns = [turn(g.session, [*g.tokens, *g.ids, 60, 61], seed=number) for g in turns]


@pytest.mark.parametrize("more", [0, 1, 20])
def test_a_prompt_that_repeats_what_another_turn_is_just_writing(
    more: int, make_sampler: Callable[..., Sampler], plain_model: Any
) -> None:
    """The other's newest token has no keys before the pass that both share: it must not be copied from there."""
    sampler = make_sampler(3)
    writing = turn("a", [*TRUNK, 100], new=8)
    sampler.add(writing)
    for _ in range(4):
        sampler.step()
    joining = turn("b", [*writing.tokens, *writing.ids, 99, *range(200, 200 + more)])
    same = turn("c", [*writing.tokens, *writing.ids])
    sampler.add(joining)
    sampler.add(same)
    finish(sampler)
    assert_exact(plain_model, writing, joining, same)


def test_slots_of_closed_sessions_are_used_again(make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    sampler = make_sampler(2)
    for n in range(6):
        g = turn(f"s{n}", [*TRUNK[: 10 * (n % 3)], 100 + n, 7, 8])
        sampler.add(g)
        finish(sampler)
        sampler.close(g.session)
        assert_exact(plain_model, g)


def test_the_trunk_survives_from_rollout_to_rollout_of_equal_weights(
    make_sampler: Callable[..., Sampler], plain_model: Any
) -> None:
    sampler = make_sampler(2)
    for n in range(2):
        before = sampler.tokens_computed
        turns = [turn(f"{n}{k}", [*TRUNK, 100 + 10 * n + k], new=1) for k in range(2)]
        for g in turns:
            sampler.add(g)
        finish(sampler)
        assert_exact(plain_model, *turns)
        for g in turns:
            sampler.close(g.session)
        assert sampler.tokens_computed - before == (len(TRUNK) if n == 0 else 0) + 2


def test_new_weights_forget_everything_old(
    make_sampler: Callable[..., Sampler], make_policy: Callable[..., Any], plain_model: Any
) -> None:
    sampler = make_sampler(2)
    first = turn("s", [*TRUNK, 100])
    sampler.add(first)
    finish(sampler)
    assert first.version == 0
    policy = make_policy()
    sampler.load_weights(policy.merged_weights(), 5)
    second = turn("s", [*first.tokens, *first.ids, 60, 61])
    sampler.add(second)
    finish(sampler)
    assert second.version == 5
    from local_engine.policy import Trajectory

    with torch.no_grad():
        (want,) = policy.log_probs([Trajectory([*second.tokens, *second.ids], [1] * len(second.ids))], 0.7)
    torch.testing.assert_close(torch.tensor(second.log_probs), want, atol=1e-4, rtol=0)
    stale = plain_log_probs(plain_model, second.tokens + second.ids, 0.7)[-len(second.ids) :]
    assert float((want - stale).abs().max()) > 1e-2


def test_weights_do_not_change_under_a_turn(make_sampler: Callable[..., Sampler]) -> None:
    sampler = make_sampler(1)
    sampler.add(turn("s", TRUNK))
    sampler.step()
    with pytest.raises(RuntimeError, match="being sampled"):
        sampler.load_weights([], 1)


def test_temperature_zero_takes_the_likeliest(make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    sampler = make_sampler(2)
    g = turn("s", [*TRUNK, 100], temperature=0.0, new=8)
    sampler.add(g)
    sampler.add(turn("t", [*TRUNK, 101], temperature=1.0, new=8))
    finish(sampler)
    assert_exact(plain_model, g)
    logits = plain_model(input_ids=torch.tensor([g.tokens + g.ids])).logits[0]
    assert logits[len(g.tokens) - 1 : -1].argmax(-1).tolist() == g.ids


def test_equal_streams_give_equal_turns_and_others_do_not(make_sampler: Callable[..., Sampler]) -> None:
    def ids(seed: int) -> list[int]:
        sampler = make_sampler(1)
        g = turn("s", TRUNK, seed=seed, new=12)
        sampler.add(g)
        finish(sampler)
        return g.ids

    assert ids(1) == ids(1) != ids(2)


def test_the_end_token_ends_a_turn_and_is_kept(make_sampler: Callable[..., Sampler]) -> None:
    free = turn("s", TRUNK, new=12, seed=4)
    sampler = make_sampler(1)
    sampler.add(free)
    finish(sampler)
    end = free.ids[5]
    ended = turn("s", TRUNK, new=12, seed=4)
    sampler = make_sampler(1, end_tokens=(end,))
    sampler.add(ended)
    finish(sampler)
    assert ended.finish_reason == "stop"
    assert ended.ids == free.ids[: free.ids.index(end) + 1]


def test_the_length_limit_ends_a_turn(make_sampler: Callable[..., Sampler]) -> None:
    sampler = make_sampler(1)
    turns = [turn("a", TRUNK, new=1), turn("b", TRUNK, new=7)]
    for g in turns:
        sampler.add(g)
    finish(sampler)
    assert [(len(g.ids), g.finish_reason) for g in turns] == [(1, "length"), (7, "length")]


@pytest.mark.parametrize("kind", ["stop", "stop_regex"])
def test_a_stop_text_ends_a_turn_and_is_kept(kind: str, make_sampler: Callable[..., Sampler], tokenizer: Any) -> None:
    free = turn("s", TRUNK, new=20, seed=3)
    sampler = make_sampler(1)
    sampler.add(free)
    finish(sampler)
    text = tokenizer.decode(free.ids[4:7])  # spans tokens
    rule: dict[str, Any] = {kind: (text if kind == "stop" else f"x{{9}}|{re.escape(text)}",)}
    stopped = turn("s", TRUNK, new=20, seed=3, **rule)
    sampler = make_sampler(1)
    sampler.add(stopped)
    finish(sampler)
    assert stopped.finish_reason == "stop"
    assert stopped.ids == free.ids[: len(stopped.ids)]
    assert text in tokenizer.decode(stopped.ids)
    assert text not in tokenizer.decode(stopped.ids[:-1])


def test_a_cancelled_turn_takes_no_further_part(make_sampler: Callable[..., Sampler], plain_model: Any) -> None:
    sampler = make_sampler(2)
    dropped, kept, never = turn("a", [*TRUNK, 1], new=50), turn("b", [*TRUNK, 2], new=8), turn("c", [*TRUNK, 3])
    for g in (dropped, kept, never):
        sampler.add(g)
    sampler.step()
    sampler.cancel(dropped)
    sampler.cancel(never)
    assert finish(sampler) == [kept]
    assert len(dropped.ids) == 1 and not never.ids
    assert_exact(plain_model, kept)
    # The session may ask again: what its slot holds is still right.
    again = turn("a", [*TRUNK, 1, *dropped.ids, 9], new=4)
    sampler.add(again)
    finish(sampler)
    assert_exact(plain_model, again)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_are_distributed_as_the_softmax(temperature: float) -> None:
    """Pearson's statistic over 20,000 draws against its 1e-4 quantile; 700 tokens make three blocks."""
    draw = random.Random(1)
    logits = torch.randn(1, 700, generator=torch.Generator().manual_seed(0)) * 2
    want = torch.softmax(logits[0].double() / temperature, -1)
    counts = torch.zeros(700, dtype=torch.float64)
    for _ in range(40):
        ids, log_probs = sample(logits.expand(500, -1), [temperature] * 500, [draw.random() for _ in range(500)])
        counts += torch.bincount(torch.tensor(ids), minlength=700)
        torch.testing.assert_close(torch.tensor(log_probs), want[ids].log().float(), atol=1e-4, rtol=1e-4)
    order = want.argsort()
    expected, seen = (want * 20_000)[order], counts[order]
    # Rare tokens are counted together, so that every class is expected at least five times.
    cut = int((expected.cumsum(0) < 5).sum()) + 1
    classes = [(expected[:cut].sum(), seen[:cut].sum())]
    for e, s in zip(expected[cut:], seen[cut:], strict=True):
        last = classes[-1]
        classes[-1:] = [(last[0] + e, last[1] + s)] if last[0] < 5 else [last, (e, s)]
    statistic = float(sum((s - e) ** 2 / e for e, s in classes))
    freedom = len(classes) - 1
    # Wilson and Hilferty's approximation of the chi-square quantile.
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.719 * math.sqrt(2 / (9 * freedom))) ** 3
    assert statistic < quantile


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53, 0.5])
def test_extreme_draws_never_pick_an_impossible_token(uniform: float) -> None:
    logits = torch.full((1, 600), float("-inf"))
    logits[0, [3, 255, 256, 400]] = torch.tensor([0.0, 1.0, 2.0, 0.0])
    ids, log_probs = sample(logits, [1.0], [uniform])
    assert ids[0] in {0.0: {3}, 0.5: {256}}.get(uniform, {400})
    assert math.isfinite(log_probs[0])


@pytest.mark.parametrize("temperature", [1e-42, 1e-7])
def test_a_temperature_just_above_zero_takes_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([[1.0, 900.0, -4e4, 899.0]])
    ids, log_probs = sample(logits, [temperature], [0.5])
    assert ids == [1]
    assert log_probs == [0.0]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("logit", [math.nan, math.inf])
def test_a_model_that_has_diverged_is_named(logit: float, temperature: float) -> None:
    logits = torch.zeros(2, 600)
    logits[1, 7] = logit
    with pytest.raises(FloatingPointError, match="diverged"):
        sample(logits, [temperature] * 2, [0.5] * 2)


def test_rows_are_sampled_independently_of_each_other() -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    temperatures, uniforms = [0.0, 0.7, 1.0, 0.0, 2.0], [0.1, 0.9, 0.4, 0.2, 0.7]
    together = sample(logits, temperatures, uniforms)[0]
    alone = [sample(logits[n : n + 1], [temperatures[n]], [uniforms[n]])[0][0] for n in range(5)]
    assert together == alone


def exact_from(model: Any, g: Generation, first: int) -> None:
    """The log-probabilities of `g.ids[first:]` are those of `model` over everything before them."""
    want = plain_log_probs(model, g.tokens + g.ids, g.params.temperature)[len(g.tokens) - 1 + first :]
    torch.testing.assert_close(torch.tensor(g.log_probs[first:]), want, atol=1e-4, rtol=0)


def test_a_retracted_turn_is_computed_anew_with_the_new_weights_and_keeps_its_tokens(
    make_sampler: Callable[..., Sampler], merged_model: tuple[Any, Any], plain_model: Any
) -> None:
    policy, new_model = merged_model
    sampler = make_sampler(4)
    turns = [turn(f"s{n}", [*TRUNK, 100 + n], new=8) for n in range(3)]
    for g in turns[:2]:
        sampler.add(g)
    for _ in range(3):
        sampler.step()
    sampler.add(turns[2])
    kept = [list(g.ids) for g in turns]
    sampler.load_weights(policy.merged_weights(), 7, running="retract")
    finish(sampler)
    for g, before in zip(turns, kept, strict=True):
        assert g.ids[: len(before)] == before
        assert g.version == (0 if before else 7)
        exact_from(new_model, g, len(before))
    torch.testing.assert_close(
        torch.tensor(turns[0].log_probs[:3]),
        plain_log_probs(plain_model, turns[0].tokens + turns[0].ids, 0.7)[len(TRUNK) : len(TRUNK) + 3],
        atol=1e-4,
        rtol=0,
    )


def test_a_turn_that_goes_on_in_place_reads_its_old_keys_and_nobody_else_does(
    make_sampler: Callable[..., Sampler], merged_model: tuple[Any, Any], plain_model: Any
) -> None:
    policy, new_model = merged_model
    sampler = make_sampler(4)
    running = turn("running", [*TRUNK, 100], new=8)
    sampler.add(running)
    for _ in range(3):
        sampler.step()
    sampler.load_weights(policy.merged_weights(), 7, running="in_place")
    other = turn("other", [*TRUNK, 100], new=3)
    sampler.add(other)
    before = sampler.tokens_computed
    sampler.step()
    assert sampler.tokens_computed - before == 1 + len(other.tokens)  # nothing of the running turn is computed again
    finish(sampler)
    assert (running.version, other.version) == (0, 7)
    exact_from(new_model, other, 0)

    # The library's own cache, filled by the old weights and read by the new ones.
    seen = running.tokens + running.ids[:2]
    with torch.no_grad():
        cache = plain_model(input_ids=torch.tensor([seen]), use_cache=True).past_key_values
        logits = new_model(input_ids=torch.tensor([running.ids[2:-1]]), cache=cache, use_cache=True).logits[0]
    want = torch.log_softmax(logits.float() / 0.7, -1).gather(1, torch.tensor(running.ids[3:])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(running.log_probs[3:]), want, atol=1e-4, rtol=0)

    after = turn("running", [*running.tokens, *running.ids, 60], new=3)
    sampler.add(after)
    finish(sampler)
    exact_from(new_model, after, 0)
