"""A client of Spark Connect: reads, writes and follows a stream, and says what it found.

python -m tests.spark.connect_child URL SOURCE SINK CHECKPOINT
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.world import up_and_running


def main(url: str, source: str, sink: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    reading = {"endpoint": url, "stream": source}
    writing = {"endpoint": url, "stream": sink, "createStream": "true"}
    typed = spark.read.format("headwater").schema("n long").options(**reading).load()
    total = typed.selectExpr("sum(n) AS total").collect()[0].total
    run_once = {"producerId": "connect", "txnVersion": "1"}
    for _ in range(2):
        typed.write.format("headwater").mode("append").options(**writing, **run_once).save()
    copying = (
        spark.readStream.format("headwater")
        .options(**reading, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        .load()
        .select("value")
        .writeStream.format("headwater")
        .options(**writing)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    up_and_running(copying.start).awaitTermination()
    said = ""
    try:
        spark.read.format("headwater").option("strem", "x").load().collect()
    except PySparkException as error:
        said = str(error)
    print(json.dumps({"total": total, "said": said, "kind": type(spark).__module__}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
