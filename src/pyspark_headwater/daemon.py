"""Spark's worker daemon with this package loaded, so that no worker has to load it again.

Spark forks its Python workers off a daemon. With

    spark.python.daemon.module=pyspark_headwater.daemon

they begin with everything in place, which takes about half a second off each start; a micro-batch
has several of them. And after each task a worker looks for garbage among everything that was
loaded, 100,000 objects: setting them aside takes another 30 ms off every task.
"""

import gc

from pyspark.daemon import manager

import pyspark_headwater.reading  # noqa: F401 - loaded for the workers, not for this process

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
