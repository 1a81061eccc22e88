"""A dump that cannot be read."""


class Unreadable(Exception):
    """One file is not what its name says; the text says why. `lasting`: as long as the file is as it is."""

    def __init__(self, reason: str, *, lasting: bool = True) -> None:
        super().__init__(reason)
        self.lasting = lasting
