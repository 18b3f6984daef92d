"""Too much at once, or too much in total."""

from __future__ import annotations

from headwater.core.errors.base import StreamError


class BodyTooLarge(StreamError):
    code = "body_too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"the body is larger than {limit_bytes} bytes; send it in several requests"
        )


class BodiesFull(StreamError):
    code = "bodies_full"

    def __init__(self) -> None:
        super().__init__(
            "bodies that were sent before take up all the room there is; try again shortly"
        )


class TooManyMessages(StreamError):
    code = "too_many_messages"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"an append has at most {limit} messages; send the rest in another one, or raise "
            "messages_per_append_max"
        )
        self.limit = limit


class TooBusy(StreamError):
    """A queue is full. Nothing was written."""

    code = "too_busy"

    def __init__(self, message: str = "the write queue is full; try again shortly") -> None:
        super().__init__(message)


class TooManyProducers(StreamError):
    code = "too_many_producers"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this stream knows {limit} producers, the most there may be; use a Producer-Id again, "
            "wait until idle ones are forgotten, or raise producers_per_stream_max"
        )
        self.limit = limit


class TooManyReaders(TooBusy):
    code = "too_many_readers"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} live readers follow this stream already; try again later")
        self.limit = limit


class TooManyReadersOfCaller(TooBusy):
    code = "too_many_readers_of_caller"

    def __init__(self, limit: int) -> None:
        super().__init__(f"you have {limit} live reads open, the most there may be; end one first")
        self.limit = limit


class RateExceeded(TooBusy):
    code = "rate_exceeded"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too much in too short a time; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class BuffersFull(StreamError):
    code = "buffers_full"

    def __init__(self) -> None:
        super().__init__("too much data waits for slow readers; try again shortly")
