"""What can go wrong in a measurement, without ending the whole run."""


class BenchmarkError(Exception):
    """One measurement could not be taken; the runner records why and goes on."""


class ServerFailed(BenchmarkError):
    """A server did not start, did not become ready, or ended while it was measured."""


class LoadFailed(BenchmarkError):
    """The load generator ended with an error or ran out of time."""


class PeerFailed(BenchmarkError):
    """The client that ours is compared with cannot be installed."""
