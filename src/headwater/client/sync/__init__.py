"""The blocking client: the asyncio client on a thread of its own. Generated, but for `portal`."""
