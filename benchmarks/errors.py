"""Failures of one measurement, which do not end the whole run."""


class BenchmarkError(Exception):
    """One measurement failed; the runner records why and continues."""


class ServerFailed(BenchmarkError):
    """A server did not start, did not become ready, or exited while it was measured."""


class LoadFailed(BenchmarkError):
    """The load generator failed or ran out of time."""


class PeerFailed(BenchmarkError):
    """The client that ours is compared with cannot be installed."""
