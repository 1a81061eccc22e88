"""What ends the server before it starts."""


class BadSetting(ValueError):
    """A setting cannot work; the text says which and what would."""
