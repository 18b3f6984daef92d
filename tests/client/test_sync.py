"""The blocking flavour: that it has the async one's surface, and what is its own."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from headwater import client as api
from headwater.client import (
    ConnectionFailed,
    Headwater,
    MaterializedState,
    ProducerOptions,
    RetryPolicy,
    Stream,
)
from headwater.client.protocol.streams import Request, Response
from scripts import make_sync
from tests.client.fake_transport import FakeTransport, granted, refused, script
from tests.client.flavours import COUNTERPARTS, RENAMED

CLASSES = [pair for pair in COUNTERPARTS.items() if pair[0] is not api.Delivery]
DERIVED = {name: other for other, name in RENAMED.items()}


# --- The same surface ----------------------------------------------------------------------------


def test_every_substituted_sentence_exists() -> None:
    aio = make_sync.CLIENT / "aio"
    sources = "".join((aio / f"{name}.py").read_text() for name in make_sync.SOURCES)
    assert all(sentence in sources for sentence in make_sync.WORDING)


def public_names(cls: type) -> set[str]:
    special = {*RENAMED, *RENAMED.values()}
    return {n for n in dir(cls) if not n.startswith("_") or n in special}


@pytest.mark.parametrize("blocking, counterpart", CLASSES, ids=lambda cls: cls.__name__)
def test_the_same_names(blocking: type, counterpart: type) -> None:
    translated = {RENAMED.get(name, name) for name in public_names(counterpart)}
    assert public_names(blocking) == translated


def methods() -> list[Any]:
    return [
        pytest.param(blocking, counterpart, name, id=f"{blocking.__name__}.{name}")
        for blocking, counterpart in CLASSES
        for name in sorted(public_names(blocking))
    ]


@pytest.mark.parametrize("blocking, counterpart, name", methods())
def test_the_same_parameters_and_documentation(
    blocking: type, counterpart: type, name: str
) -> None:
    ours = inspect.getattr_static(blocking, name)
    theirs = inspect.getattr_static(counterpart, name, None) or inspect.getattr_static(
        counterpart, DERIVED[name]
    )
    assert isinstance(ours, property) is isinstance(theirs, property)
    if isinstance(ours, property):
        assert ours.__doc__ == theirs.__doc__
        return
    assert not inspect.iscoroutinefunction(ours)
    our_parameters = inspect.signature(ours).parameters
    their_parameters = inspect.signature(theirs).parameters
    assert list(our_parameters) == list(their_parameters)
    for mine, other in zip(our_parameters.values(), their_parameters.values(), strict=True):
        assert (mine.kind, mine.default) == (other.kind, other.default)
    assert (ours.__doc__ is None) is (theirs.__doc__ is None)
    assert "await" not in (ours.__doc__ or "")


def test_the_constructors_are_the_same() -> None:
    ours, theirs = inspect.signature(api.Headwater), inspect.signature(api.AsyncHeadwater)
    assert ours.parameters.keys() == theirs.parameters.keys()


def test_everything_public_is_documented() -> None:
    for name in api.__all__:
        thing = getattr(api, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
            for method in public_names(thing) - {*RENAMED, *RENAMED.values()}:
                attribute = inspect.getattr_static(thing, method)
                if callable(attribute) or isinstance(attribute, property):
                    assert attribute.__doc__, f"{name}.{method}"


# --- What is its own -----------------------------------------------------------------------------


@pytest.fixture
def blocking_stream(base_url: str, new_path: str) -> Any:
    with Headwater(base_url) as client:
        stream = client.stream(new_path)
        stream.create(content_type="application/json")
        yield stream


def test_callers_code_runs_on_the_callers_thread(blocking_stream: Stream) -> None:
    """So that it may use the client itself: a read may feed an append."""
    threads = []

    def numbers() -> Any:
        for message in blocking_stream.read().messages():
            threads.append(threading.current_thread())
            yield message + 10

    blocking_stream.append_all([1, 2])
    blocking_stream.append_all(numbers())
    assert blocking_stream.read_json() == [1, 2, 11, 12]
    assert set(threads) == {threading.current_thread()}


def test_callbacks_may_use_the_client(blocking_stream: Stream) -> None:
    closed: list[bool] = []
    state = MaterializedState()
    state.on_change(lambda _: closed.append(blocking_stream.head().closed))
    headers = {"operation": "insert"}
    blocking_stream.append({"type": "t", "key": "k", "value": 1, "headers": headers}, close=True)
    assert [change.key for change in blocking_stream.follow().changes(state)] == ["k"]
    assert closed == [True]


def test_iterators_are_lazy() -> None:
    transport = FakeTransport(script(granted("0_1", b"[1,2]"), granted("0_2", b"[3]")))
    with Headwater("http://server", transport=transport) as client:
        messages = client.stream("s").read().messages()
        assert not transport.requests
        assert [next(messages), next(messages)] == [1, 2]
        assert len(transport.requests) == 1
        assert next(messages) == 3


def test_one_client_for_many_threads(blocking_stream: Stream) -> None:
    def work(name: int) -> None:
        for number in range(20):
            blocking_stream.append([[name, number]])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = blocking_stream.read_json()
    for name in range(8):
        assert [n for who, n in messages if who == name] == list(range(20))


def test_one_producer_for_many_threads(blocking_stream: Stream) -> None:
    options = ProducerOptions(max_buffer_bytes=500, max_batch_bytes=100)
    with blocking_stream.producer(options=options) as producer:

        def work(name: int) -> None:
            for number in range(200):
                producer.append([[name, number]])

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    messages = blocking_stream.read_json()
    for name in range(4):
        assert [n for who, n in messages if who == name] == list(range(200))


def test_deliveries(blocking_stream: Stream) -> None:
    called = threading.Event()
    with blocking_stream.producer() as producer:
        delivery = producer.append(1)
        delivery.add_done_callback(lambda _: called.set())
        assert delivery.result().next_offset == blocking_stream.head().next_offset
        assert delivery.done()
        assert called.wait(60)


def test_a_delivery_that_takes_too_long_can_be_waited_for_again() -> None:
    release = asyncio.Event()

    async def handle(request: Request) -> Response:
        await release.wait()
        return granted("0_1")

    with Headwater("http://server", transport=FakeTransport(handle)) as client:
        stream = client.stream("s", content_type="text/plain")
        with stream.producer(options=ProducerOptions(linger_s=0.0)) as producer:
            delivery = producer.append("x")
            with pytest.raises(TimeoutError):
                delivery.result(timeout_s=0.0)
            client._portal._loop.call_soon_threadsafe(release.set)
            assert delivery.result().next_offset == "0_1"


def test_errors_keep_their_type_and_data() -> None:
    transport = FakeTransport(script(refused(404, "stream_not_found")))
    with (
        Headwater("http://server", transport=transport) as client,
        pytest.raises(api.StreamNotFound) as caught,
    ):
        client.stream("s").head()
    assert caught.value.code == "stream_not_found"


def test_a_server_that_is_not_there() -> None:
    impatient = RetryPolicy(give_up_after_s=0.0)
    with (
        Headwater("http://127.0.0.1:1", retry=impatient) as client,
        pytest.raises(ConnectionFailed) as caught,
    ):
        client.stream("s").head()
    assert not caught.value.in_doubt


def test_a_closed_client() -> None:
    client = Headwater("http://server", transport=FakeTransport(script()))
    stream = client.stream("s")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        stream.head()


def client_threads() -> int:
    return sum(thread.name == "headwater-client" for thread in threading.enumerate())


def test_a_forgotten_client_ends_with_its_last_handle() -> None:
    gc.collect()
    before = client_threads()
    transport = FakeTransport(script(granted("0_1")))
    stream = Headwater("http://server", transport=transport).stream("s")
    gc.collect()
    assert client_threads() == before + 1
    stream.head()
    del stream
    gc.collect()
    assert client_threads() == before


def test_it_refuses_to_wait_for_itself() -> None:
    problems: list[Exception] = []

    async def handle(request: Request) -> Response:
        try:
            stream.head()
        except RuntimeError as error:
            problems.append(error)
        return granted("0_1")

    with Headwater("http://server", transport=FakeTransport(handle)) as client:
        stream = client.stream("s")
        stream.head()
    assert "its own event loop thread" in str(problems[0])


INTERRUPTED = """
    import sys
    from headwater.client import Headwater
    with Headwater(sys.argv[1]) as client:
        stream = client.stream(sys.argv[2])
        with stream.follow(live=sys.argv[3]) as reader:
            messages = reader.messages()
            try:
                print(next(messages), flush=True)
                next(messages)
            except KeyboardInterrupt:
                print("interrupted at", reader.position, flush=True)
            stream.append(2)
            print(next(messages), flush=True)
"""


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_an_interrupt_is_clean_and_the_reader_goes_on(
    blocking_stream: Stream, base_url: str, live: str
) -> None:
    receipt = blocking_stream.append(1)
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED)]
    with subprocess.Popen(
        [*command, base_url, blocking_stream.path, live],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGINT)
        output, problems = process.communicate()
    assert output == f"interrupted at {receipt.next_offset}\n2\n"
    assert problems == ""
    assert process.returncode == 0


def test_an_interrupt_does_not_wait_for_a_name_server() -> None:
    """What never answers is still being asked when the process ends."""
    program = """
import _thread, socket, threading

def ask(*_, **__):
    _thread.interrupt_main()
    threading.Event().wait()

socket.getaddrinfo = ask
from headwater.client import Headwater

try:
    Headwater("http://nowhere.example").streams()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (b"interrupted\n", b"", 0)
