"""The blocking client, generated from the async one.

Every public method of an async class becomes a method of the same name, signature and docstring.
There are two ways to derive its body:

* **sent over** (the rule): the whole call goes to the event loop, and the caller waits;
* **kept here** (those in `KEPT_HERE`): the body is copied and runs on the caller's thread, with
  `self` replaced by the async object and every `await` sent over separately. That is for iterators
  and appends, where crossing threads for each item would cost more than the work itself, and where
  the caller's own code (iterables, callbacks) must not run on the client's thread.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "headwater" / "client"
SOURCES = (
    *("reader", "records", "producer", "message", "consumer", "group", "live", "snapshots"),
    "response",
    *("readable", "writable", "stream", "subscription", "client"),
)
LINE_LENGTH = 100

CLASSES = {
    "AsyncHeadwater": "Headwater",
    "AsyncReadableStream": "ReadableStream",
    "AsyncWritableStream": "WritableStream",
    "AsyncStream": "Stream",
    "AsyncReader": "Reader",
    "AsyncItems": "Items",
    "AsyncRecords": "Records",
    "AsyncProducer": "Producer",
    "AsyncGroup": "Group",
    "AsyncConsumer": "Consumer",
    "AsyncMessage": "Message",
    "AsyncTransaction": "Transaction",
    "AsyncLiveStream": "LiveStream",
    "AsyncLiveQuery": "LiveQuery",
    "AsyncSnapshots": "Snapshots",
    "AsyncDurableResponse": "DurableResponse",
    "AsyncSubscription": "Subscription",
    "AsyncClaim": "Claim",
}
# Return values of these types are wrapped in the blocking client.
WRAPPED = {**CLASSES, "AsyncDelivery": "Delivery"}
METHODS = {
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
}
KEPT_HERE = {
    ("AsyncWritableStream", "append_all"),
    ("AsyncReader", "__anext__"),
    ("AsyncItems", "__anext__"),
    ("AsyncRecords", "__anext__"),
    ("AsyncConsumer", "__anext__"),
    ("AsyncLiveQuery", "__anext__"),
    ("AsyncProducer", "append"),
    ("AsyncProducer", "append_nowait"),
}
# Sentences that are true of only one of the two clients.
WORDING = {
    "It belongs to the event loop that it is first used on.": (
        "Several threads may use it; a reader, one at a time."
    ),
    "(plain or async)": "(without arguments)",
    "cancelled, the message has not been accepted": (
        "interrupted, the message has not been accepted"
    ),
    "when the iteration is cancelled": "when the iteration is interrupted",
    "start a task for each": "hand them to threads",
    "You can cancel at any time": "You can stop at any time",
}

HEADER = '''\
"""The blocking client. Written by scripts/make_sync.py from aio/{source}.py: DO NOT EDIT."""

from __future__ import annotations

{imports}'''
TYPE_VARIABLE = """
T = TypeVar("T")
"""
# Where the names come from that generated code may use.
IMPORTS = {
    "collections.abc": ("Awaitable", "Callable", "Iterable", "Mapping"),
    "datetime": ("datetime",),
    "typing": ("Any", "Generic", "Self", "TypeVar", "overload"),
    "headwater.client.aio.client": ("AsyncHeadwater",),
    "headwater.client.aio.consumer": ("AsyncConsumer",),
    "headwater.client.aio.group": ("AsyncGroup",),
    "headwater.client.aio.live": ("WAIT_S", "AsyncLiveQuery", "AsyncLiveStream", "_settled"),
    "headwater.client.aio.message": ("AsyncMessage", "AsyncTransaction"),
    "headwater.client.sync.portal": ("Blocking", "BlockingContext", "Delivery", "Portal"),
    "headwater.client.aio.producer": ("AsyncProducer", "ProducerOptions"),
    "headwater.client.aio.reader": ("AsyncItems", "AsyncReader"),
    "headwater.client.aio.response": ("AsyncDurableResponse",),
    "headwater.client.aio.sender": ("Token", "Values"),
    "headwater.client.aio.snapshots": ("AsyncSnapshots",),
    "headwater.client.aio.readable": ("AsyncReadableStream", "Since"),
    "headwater.client.aio.records": ("AsyncRecords",),
    "headwater.client.aio.stream": ("AsyncStream",),
    "headwater.client.aio.writable": ("BATCH_BYTES_MAX", "AsyncWritableStream"),
    "headwater.client.aio.subscription": ("AsyncClaim", "AsyncSubscription"),
    "headwater.client.sync.consumer": ("Consumer",),
    "headwater.client.sync.group": ("Group",),
    "headwater.client.sync.live": ("LiveStream",),
    "headwater.client.sync.message": ("Message", "Transaction"),
    "headwater.client.sync.producer": ("Producer",),
    "headwater.client.sync.reader": ("Items", "Reader"),
    "headwater.client.sync.readable": ("ReadableStream",),
    "headwater.client.sync.records": ("Records",),
    "headwater.client.sync.response": ("DurableResponse",),
    "headwater.client.sync.snapshots": ("Snapshots",),
    "headwater.client.sync.stream": ("Stream",),
    "headwater.client.sync.subscription": ("Subscription",),
    "headwater.client.sync.writable": ("WritableStream",),
    "headwater.client.protocol.batch": ("Batch", "Position"),
    "headwater.client.errors": ("BufferFull", "HeadwaterError"),
    "headwater.client.protocol.groups": (
        "Committed",
        "DeliveredProducer",
        "GroupInfo",
        "OnDuplicate",
    ),
    "headwater.client.protocol.live": ("NOW", "Activation", "LiveMeta", "WaitResult"),
    "headwater.client.live_keys": ("Keyset", "Template"),
    "headwater.client.protocol.streams": (
        "NOTHING",
        "START",
        "Durability",
        "Live",
        "ProducerTag",
        "Receipt",
        "Response",
        "StreamInfo",
        "UniqueIds",
    ),
    "headwater.client.protocol.extensions": (
        "BULK_BYTES",
        "LATEST",
        "PAGE",
        "Bulk",
        "Ranges",
        "Reach",
        "Snapshot",
        "SnapshotInfo",
        "StreamDetails",
        "StreamPage",
        "StreamSummary",
    ),
    "headwater.client.protocol.records": ("Record",),
    "headwater.client.protocol.retry": ("RetryPolicy",),
    "headwater.client.protocol.state": ("Change", "MaterializedState"),
    "headwater.client.protocol.subscriptions": (
        "LinkedStream",
        "SubscriptionInfo",
        "WebhookKeys",
        "WebhookWake",
    ),
    "headwater.client.aio.transport": ("Timeouts", "Transport"),
    "headwater.core.live.encodings": ("Encoding",),
    "headwater.core.live.profile": ("Profile",),
    "headwater.core.payloads": ("encode_append", "encode_batches", "encode_body"),
}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def generate() -> dict[Path, str]:
    """The text of each generated module."""
    return {CLIENT / "sync" / f"{source}.py": generate_module(source) for source in SOURCES}


def generate_module(source: str) -> str:
    text = (CLIENT / "aio" / f"{source}.py").read_text()
    classes = [
        "\n".join(generate_class(node, text))
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name in CLASSES
    ]
    code = "\n\n\n".join(classes) + "\n"
    header = HEADER.format(source=source, imports=import_lines(code))
    return header + "\n\n" + code


def import_lines(code: str) -> str:
    """The imports that the code needs, standard library first."""
    tree = ast.parse(code)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - defined
    if "T" in used:
        used.add("TypeVar")
    lines: list[str] = []
    ours_last = sorted(IMPORTS, key=lambda module: (module.startswith("headwater"), module))
    for module in ours_last:
        names = IMPORTS[module]
        wanted = [name for name in names if name in used]
        if wanted:
            if module.startswith("headwater") and lines and "headwater" not in lines[-1]:
                lines.append("")
            lines.append(import_line(module, wanted))
    return "\n".join(lines) + "\n" + (TYPE_VARIABLE if "T" in used else "")


def import_line(module: str, names: list[str]) -> str:
    """One import, with one name per line if it is too long for one."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE_LENGTH:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


def generate_class(node: ast.ClassDef, source: str) -> Iterator[str]:
    """The blocking counterpart of one class, line by line."""
    functions = [n for n in node.body if isinstance(n, FunctionNode)]
    is_context = any(function.name == "__aenter__" for function in functions)
    base = "BlockingContext" if is_context else "Blocking"
    parents = [ast.unparse(parent) for parent in node.bases]
    inherits = bool(parents) and parents[0] in CLASSES
    if inherits:
        wrapped = CLASSES[parents[0]]
    else:
        wrapped = f"{base}[{node.name}[T]], Generic[T]" if parents else f"{base}[{node.name}]"
    yield f"class {CLASSES[node.name]}({wrapped}):"
    yield from docstring_lines(node, source)
    if inherits:
        yield ""
        yield f"    _async: {node.name}"
    for function in functions:
        if is_public(node.name, function.name):
            if not is_overload_sibling(function, functions):
                yield ""
            yield from generate_method(node.name, function, source)


def is_public(class_name: str, name: str) -> bool:
    if name in ("__init__", "__aexit__"):
        return class_name == "AsyncHeadwater"
    return not name.startswith("_") or name in METHODS or name == "__repr__"


def is_overload_sibling(function: FunctionNode, functions: list[FunctionNode]) -> bool:
    """Whether this follows an overload of the same name, which is right above it."""
    index = functions.index(function)
    return index > 0 and functions[index - 1].name == function.name


def generate_method(class_name: str, function: FunctionNode, source: str) -> Iterator[str]:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    yield from (f"    @{decorator}" for decorator in decorators)
    name = METHODS.get(function.name, function.name)
    if "overload" in decorators:
        yield from signature_lines(name, function, " ...")
        return
    yield from signature_lines(name, function)
    yield from docstring_lines(function, source, indent=8)
    yield from body_lines(class_name, function, is_property="property" in decorators)


def signature_lines(name: str, function: FunctionNode, ending: str = "") -> Iterator[str]:
    returns = translated(ast.unparse(function.returns)) if function.returns else "None"
    parameters = list(parameter_texts(function.args))
    one_line = f"    def {name}({', '.join(parameters)}) -> {returns}:{ending}"
    if len(one_line) <= LINE_LENGTH:
        yield one_line
        return
    yield f"    def {name}("
    yield from (f"        {parameter}," for parameter in parameters)
    yield f"    ) -> {returns}:{ending}"


def parameter_texts(arguments: ast.arguments) -> Iterator[str]:
    positional = arguments.args
    first_default = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        default = arguments.defaults[index - first_default] if index >= first_default else None
        yield parameter_text(argument, default)
    if arguments.vararg is not None:
        yield f"*{parameter_text(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield parameter_text(argument, default)


def parameter_text(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {translated(ast.unparse(argument.annotation))}"
    if default is not None:
        text += f" = {quoted(ast.unparse(default))}" if argument.annotation else "=..."
    return text


def body_lines(class_name: str, function: FunctionNode, *, is_property: bool) -> Iterator[str]:
    if function.name == "__init__":
        yield "        self._portal = Portal()"
        yield from indented(f"self._async = {class_name}({call_arguments(function)})")
    elif function.name == "__aiter__":
        yield "        return self"
    elif function.name == "__repr__":
        yield f'        return repr(self._async).replace("{class_name}", type(self).__name__)'
    elif class_name == "AsyncHeadwater" and function.name in ("aclose", "__aexit__"):
        yield from indented(
            f"self._portal.finish(self._async.{function.name}({call_arguments(function)}))"
        )
    elif is_property and wrapper_of(function) is None:
        yield f"        return self._async.{function.name}"
    elif is_property:
        yield f"        return {wrapper_of(function)}(self._portal, self._async.{function.name})"
    elif (class_name, function.name) in KEPT_HERE:
        yield from kept_here(function)
    else:
        yield from sent_over(function)


def sent_over(function: FunctionNode) -> Iterator[str]:
    """A body that hands the whole call to the async object."""
    call = f"self._async.{function.name}({call_arguments(function)})"
    if isinstance(function, ast.AsyncFunctionDef):
        call = f"self._portal.call({call})"
    wrapper = wrapper_of(function)
    element = element_wrapper_of(function)
    if wrapper is not None:
        call = f"{wrapper}(self._portal, {call})"
    elif element is not None:
        yield from indented(f"found = {call}")
        yield f"        return [{element}(self._portal, each) for each in found]"
        return
    returns_nothing = function.returns is not None and ast.unparse(function.returns) == "None"
    yield from indented(call if returns_nothing else f"return {call}")


def kept_here(function: FunctionNode) -> Iterator[str]:
    """The method's own body, with the async object for `self` and each await sent over."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    translator = KeepHere(wrapper_of(function))
    for statement in statements:
        text = ast.unparse(ast.fix_missing_locations(translator.visit(statement)))
        yield from (f"        {quoted(line)}" for line in text.splitlines())


class KeepHere(ast.NodeTransformer):
    def __init__(self, wrapper: str | None) -> None:
        self._wrapper = wrapper

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "self":
            return ast.parse("self._async", mode="eval").body
        if node.id == "StopAsyncIteration":
            return ast.Name("StopIteration", node.ctx)
        return node

    def visit_Await(self, node: ast.Await) -> ast.expr:
        portal_call = ast.parse("self._portal.call", mode="eval").body
        return ast.Call(portal_call, [self.visit(node.value)], [])

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is None or self._wrapper is None:
            self.generic_visit(node)
            return node
        portal = ast.parse("self._portal", mode="eval").body
        wrapper = ast.Name(self._wrapper, ast.Load())
        return ast.Return(ast.Call(wrapper, [portal, self.visit(node.value)], []))


def call_arguments(function: FunctionNode) -> str:
    positional = [passed_on(argument) for argument in function.args.args[1:]]
    if function.args.vararg is not None:
        positional.append(f"*{function.args.vararg.arg}")
    named = [f"{argument.arg}={passed_on(argument)}" for argument in function.args.kwonlyargs]
    return ", ".join(positional + named)


def passed_on(argument: ast.arg) -> str:
    """An argument as the async method takes it: several blocking objects are unwrapped."""
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    element = annotation.removeprefix("Iterable[").removesuffix("]")
    return f"[each._async for each in {argument.arg}]" if element in CLASSES else argument.arg


def wrapper_of(function: FunctionNode) -> str | None:
    """The blocking class for the method's return value, if there is one."""
    returns = ast.unparse(function.returns) if function.returns else ""
    return WRAPPED.get(returns.partition("[")[0])


def element_wrapper_of(function: FunctionNode) -> str | None:
    """The blocking class for the elements of the list that the method returns."""
    returns = ast.unparse(function.returns) if function.returns else ""
    return WRAPPED.get(returns.removeprefix("list[").removesuffix("]"))


def indented(statement: str) -> Iterator[str]:
    """A statement at method level; a long call gets one argument per line."""
    if len(statement) + 8 <= LINE_LENGTH:
        yield f"        {statement}"
        return
    tree = ast.parse(statement).body[0]
    assert isinstance(tree, ast.Return | ast.Expr | ast.Assign)
    assert isinstance(tree.value, ast.Call)
    start = statement[: statement.index("(")]
    yield f"        {start}("
    yield from exploded(tree.value, indent=12)
    yield "        )"


def exploded(call: ast.Call, indent: int) -> Iterator[str]:
    """The arguments of a call on separate lines, and those of nested calls that are too long."""
    space = " " * indent
    keywords = [f"{keyword.arg}={ast.unparse(keyword.value)}," for keyword in call.keywords]
    for argument in call.args:
        text = ast.unparse(argument)
        # A single argument has no trailing comma if it fits, as the formatter does it.
        comma = "" if len(call.args) == 1 and not keywords else ","
        if len(space + text) < LINE_LENGTH or not isinstance(argument, ast.Call):
            yield f"{space}{text}{comma}"
            continue
        yield f"{space}{ast.unparse(argument.func)}("
        yield from exploded(argument, indent + 4)
        yield f"{space}){comma}"
    yield from (space + keyword for keyword in keywords)


def docstring_lines(
    node: ast.ClassDef | FunctionNode, source: str, indent: int = 4
) -> Iterator[str]:
    if ast.get_docstring(node) is None:
        return
    expression = node.body[0]
    assert isinstance(expression, ast.Expr)
    text = ast.get_source_segment(source, expression.value)
    assert text is not None
    yield " " * indent + translated_prose(text)


def translated_prose(text: str) -> str:
    for sentence, other in WORDING.items():
        text = text.replace(sentence, other)
    text = re.sub(r"\basync (with|for)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    text = text.replace("aclose", "close")
    return translated(text)


def translated(text: str) -> str:
    return quoted(re.sub(r"\bAsync(?=[A-Z])(?!Iter)", "", text))


def quoted(text: str) -> str:
    """Double quotes, as everywhere in this project; `ast.unparse` prefers single ones."""
    return re.sub(r"(?<![\w'])(f?)'([^'\"\\\n]*)'(?![\w'])", r'\1"\2"', text)


if __name__ == "__main__":
    raise SystemExit("run make generate, or python -m scripts.generate")
