"""A driver to be killed: copies one stream into another and ends when it has caught up.

python -m tests.spark.query_child URL SOURCE SINK CHECKPOINT
"""

from __future__ import annotations

import sys

from tests.spark.world import local_session


def main(url: str, source: str, sink: str, checkpoint: str) -> None:
    spark = local_session("local[2]")
    reading = {"endpoint": url, "stream": source, "startingOffsets": "earliest"}
    limits = {"maxOffsetsPerTrigger": "40", "minPartitions": "2"}
    writing = {"endpoint": url, "stream": sink, "rowsPerRequest": "7"}
    frame = spark.readStream.format("headwater").options(**reading, **limits).load()
    query = (
        frame.select("value")
        .writeStream.format("headwater")
        .options(**writing)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
