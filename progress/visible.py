"""Text of models and commands as a person may safely see it: nothing acts on the reader, nothing is without end."""

import re
from typing import Final

TEXT_CHARACTERS: Final = 8_000
"""What is kept of one text: the beginning and the end, with the number of characters left out between them."""

_HEAD_SHARE: Final = 0.75
# C0 without tab and line feed, DEL, C1, line and paragraph separator, marks that turn the direction of text, halves of
# surrogate pairs, which UTF-8 cannot hold.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def visible(text: str) -> str:
    r"""`text` with every control character as Python writes it: \x1b, \u2028, \ud800."""
    return _UNSEEN.sub(_sign, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """`text` on a line of its own: every stretch of white space is one blank."""
    return " ".join(visible(text).split())


def shortened(text: str, most: int = TEXT_CHARACTERS) -> str:
    """At most `most` characters of `text`, and where there are more a line that says how many are left out."""
    if len(text) <= most:
        return text
    head = int(most * _HEAD_SHARE)
    tail = most - head
    return f"{text[:head]}\n[... {len(text) - most:,} characters left out ...]\n{text[len(text) - tail :]}"


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
