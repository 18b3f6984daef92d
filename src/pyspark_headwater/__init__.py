"""Headwater streams in Spark: `spark.read.format("headwater")` and its three siblings.

Spark looks for packages whose name begins with `pyspark_` and registers their `DefaultSource`, so
there is nothing to call: where this package is installed the format is known. It has to be
installed wherever Python runs, on the driver and on the executors.
"""

from pyspark_headwater.source import DefaultSource

__all__ = ["DefaultSource"]
