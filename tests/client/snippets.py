"""Running the code that stands in documentation."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

SERVER = "http://localhost:4437"


def fenced(markdown: str) -> list[str]:
    """The Python blocks of a Markdown page."""
    return re.findall(r"^```python\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)


def indented(docstring: str) -> list[str]:
    """The blocks of a docstring that stand further to the right and are no doctest or list."""
    text = inspect.cleandoc(docstring)
    blocks = re.findall(r"(?:^|\n\n)((?:    .*\n?|\n(?=    ))+)", text)
    code = [textwrap.dedent(block) for block in blocks]
    return [block for block in code if ">>>" not in block and is_python(block)]


def is_python(text: str) -> bool:
    try:
        compile(text, "docstring", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return True


async def run(code: str, url: str, namespace: dict[str, Any]) -> None:
    """Run a piece of code, which may await, against a server."""
    compiled = compile(
        code.replace(SERVER, url), "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    result = eval(compiled, namespace)
    if inspect.isawaitable(result):
        await result
