"""Spark's worker daemon with this package preloaded, so that no worker has to load it.

Spark forks its Python workers off a daemon. With

    spark.python.daemon.module=pyspark_headwater.daemon

they start with everything loaded, which saves about half a second per start; a micro-batch has
several. Also, after each task a worker collects garbage among everything that was loaded, 100,000
objects: freezing them saves another 30 ms per task.
"""

import gc

from pyspark.daemon import manager

import pyspark_headwater.reading  # noqa: F401 - loaded for the workers, not for this process

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
