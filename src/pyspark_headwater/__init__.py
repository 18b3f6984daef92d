"""Headwater streams in Spark: `spark.read.format("headwater")` and its three siblings.

Spark looks for packages whose name begins with `pyspark_` and registers their `DefaultSource`, so
nothing has to be called: installing this package is enough. It has to be installed wherever Python
runs, on the driver and on the executors.
"""

from pyspark_headwater.source import DefaultSource

__all__ = ["DefaultSource"]
