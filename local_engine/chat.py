"""Talk to a trained checkpoint:  python -m local_engine.chat FOLDER [--message TEXT]

Without --message it reads lines from the terminal until end of file; each line is a new conversation that begins with
the shell agent's system prompt and example turns, as in training.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# Transformers has no complete types.

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro

from harbor_service.shell_prompt import EXAMPLE_TURNS, SYSTEM_PROMPT, user_turn
from local_engine.pretrained import CheckpointNotUsable, checkpoint_folder, load_causal_lm, load_tokenizer


@dataclass(frozen=True)
class Options:
    """Ask a checkpoint for a shell command."""

    checkpoint: tyro.conf.Positional[str]
    """Hugging Face model folder, for instance runs/<run-id>/model."""
    message: Annotated[str | None, tyro.conf.arg(aliases=["-m"])] = None
    """Ask this and end; without it, lines are read from the terminal."""
    max_new_tokens: int = 64
    """Tokens of one answer at most."""
    plain: bool = False
    """Leave out the system prompt and the example turns."""


def answers(options: Options, questions: Iterator[str]) -> Iterator[str]:
    """The model's greedy answer to each question. Raises CheckpointNotUsable."""
    # One answer at a time is bound by reading the weights; a thread for every core only waits for the others.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    folder = checkpoint_folder(options.checkpoint)
    tokenizer = load_tokenizer(folder)
    model: Any = load_causal_lm(folder, dtype=torch.float32, attention="sdpa", device=torch.device("cpu")).eval()
    opening = [] if options.plain else [{"role": "system", "content": SYSTEM_PROMPT}, *EXAMPLE_TURNS]
    for question in questions:
        inputs = tokenizer.apply_chat_template(
            [*opening, user_turn(question)], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        out = model.generate(**inputs, max_new_tokens=options.max_new_tokens, do_sample=False)
        yield tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> int:
    options = tyro.cli(Options, prog="python -m local_engine.chat")
    interactive = options.message is None
    if interactive and sys.stdin.isatty():
        print('What should be done in the shell? For instance: "Make a directory called assets." Ctrl-D ends.')
    questions = (line.strip() for line in sys.stdin) if options.message is None else iter([options.message])
    try:
        for answer in answers(options, (q for q in questions if q)):
            print(answer)
    except CheckpointNotUsable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
