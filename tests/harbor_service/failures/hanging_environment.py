"""A Harbor environment of our own whose clean-up never ends, as a provider's can."""

import asyncio

from sandbox.environment import LocalEnvironment


class HangingEnvironment(LocalEnvironment):
    """The real local sandbox, until it is to be stopped."""

    async def stop(self, delete: bool) -> None:
        await asyncio.sleep(3600)
