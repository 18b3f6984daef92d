"""What `headwater doctor` looks at: the configuration, the machine, the data directory.

A check is a function that yields findings. It changes nothing, and what it cannot find out it
leaves out.
"""

from headwater.cli.checkup.findings import Finding, Level

__all__ = ["Finding", "Level"]
