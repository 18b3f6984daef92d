"""Headwater: durable streams for Python and Spark.

The names here are loaded when they are used, so that importing the client does not bring the
server along.

>>> import asyncio, headwater
>>> async def main():
...     async with headwater.open(memory=True) as log:
...         await log.create("greetings", content_type="application/json")
...         await log.append("greetings", {"hello": "world"})
...         return (await log.read("greetings")).messages
>>> asyncio.run(main())
[{'hello': 'world'}]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.embedded import EmbeddedLog as EmbeddedLog
    from headwater.embedded import open as open

__version__ = "0.2.0"

_LAZY = {"open": "headwater.embedded", "EmbeddedLog": "headwater.embedded"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
