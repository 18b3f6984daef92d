"""The checks of `headwater doctor`: the configuration, the machine, the data directory.

A check is a function that yields findings. It changes nothing, and leaves out what it cannot
determine.
"""

from headwater.cli.checkup.findings import Finding, Level

__all__ = ["Finding", "Level"]
