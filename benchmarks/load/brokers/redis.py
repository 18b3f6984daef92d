"""Redis streams, in RESP.

Messages contain no line breaks, so an answer is complete when it has as many lines as it announces.
"""

from collections.abc import Callable, Sequence

from benchmarks.load.brokers.base import WAIT_SECONDS, Broker, Done, Fetched

_FIELD = b"d"
_NOTHING = b"*-1\r\n"
_LINES_BEFORE_MESSAGES = 5
_LINES_PER_MESSAGE = 8
_LINE_OF_ID = 2
_LINES_PER_APPEND = 2
_LINES_OF_TRANSACTION = 7


class RedisBroker(Broker):
    _lines: int | None

    def create_stream(self, stream: str, done: Done) -> None:
        done()  # the first message creates it

    def create_group(self, stream: str, group: str, done: Done) -> None:
        data = _command("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
        self._ask(data, 1, lambda _: done())

    def append(self, stream: str, messages: Sequence[bytes], done: Done) -> None:
        data = b"".join([_command("XADD", stream, "*", _FIELD, message) for message in messages])
        self._ask(data, _LINES_PER_APPEND * len(messages), lambda _: done())

    def fetch(self, stream: str, group: str, consumer: str, most: int, done: Fetched) -> None:
        self._ask(_read_group(stream, group, consumer, most), None, _taken_apart(done))

    def ack_and_fetch(
        self,
        stream: str,
        group: str,
        consumer: str,
        receipts: Sequence[bytes],
        most: int,
        done: Fetched,
    ) -> None:
        """Two commands, sent together: a pipeline."""
        fetched = _taken_apart(done)

        def acked(data: bytes) -> None:
            # Anything after the first answer already belongs to the second.
            line, _, self._buffer = data.partition(b"\r\n")
            if line != b":%d" % len(receipts):
                self._failed(f"not everything was acknowledged: {line!r}")
                return
            self._lines, self._answered = None, fetched
            self._advance()

        commands = _command("XACK", stream, group, *receipts)
        self._ask(commands + _read_group(stream, group, consumer, most), 1, acked)

    def ack(self, stream: str, group: str, receipts: Sequence[bytes], done: Done) -> None:
        def answered(data: bytes) -> None:
            if data == b":%d\r\n" % len(receipts):
                done()
            else:
                self._failed(f"not everything was acknowledged: {data!r}")

        self._ask(_command("XACK", stream, group, *receipts), 1, answered)

    def transact(
        self, stream: str, group: str, receipt: bytes, target: str, message: bytes, done: Done
    ) -> None:
        data = b"".join(
            (
                _command("MULTI"),
                _command("XACK", stream, group, receipt),
                _command("XADD", target, "*", _FIELD, message),
                _command("EXEC"),
            )
        )
        self._ask(data, _LINES_OF_TRANSACTION, lambda _: done())

    def _ask(self, data: bytes, lines: int | None, answered: Callable[[bytes], None]) -> None:
        """``lines`` is None for messages, whose number is in the answer itself."""
        self._lines = lines
        self._answered = answered
        self._transport.write(data)

    def _advance(self) -> None:
        data = self._buffer
        if data[:1] == b"-" or b"\r\n-" in data:
            self._failed(f"a command was refused: {data[:200]!r}")
            return
        lines = _announced(data) if self._lines is None else self._lines
        if lines is None or data.count(b"\r\n") < lines:
            return
        self._buffer = b""
        self._answered(data)


def _read_group(stream: str, group: str, consumer: str, most: int) -> bytes:
    block = ("COUNT", str(most), "BLOCK", str(WAIT_SECONDS * 1000))
    return _command("XREADGROUP", "GROUP", group, consumer, *block, "STREAMS", stream, ">")


def _taken_apart(done: Fetched) -> Callable[[bytes], None]:
    def answered(data: bytes) -> None:
        lines = data.split(b"\r\n")
        done(lines[_LINES_BEFORE_MESSAGES + _LINE_OF_ID :: _LINES_PER_MESSAGE], data)

    return answered


def _announced(data: bytes) -> int | None:
    """How many lines an answer with messages has; None if too little of it has arrived."""
    if data == _NOTHING:
        return 1
    head = data.split(b"\r\n", _LINES_BEFORE_MESSAGES)
    if len(head) <= _LINES_BEFORE_MESSAGES:
        return None
    return _LINES_BEFORE_MESSAGES + _LINES_PER_MESSAGE * int(head[-2][1:])


def _command(*words: str | bytes) -> bytes:
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))
