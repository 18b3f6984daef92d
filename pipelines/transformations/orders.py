"""Orders as they come in, and what they amount to."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
endpoint = str(spark.conf.get("spark.headwater.endpoint"))
stream = str(spark.conf.get("spark.headwater.stream"))


@dp.table(comment="Every order of the stream, once")
def orders() -> DataFrame:
    return (
        spark.readStream.format("headwater")
        .schema("id long, item string, price double, _timestamp timestamp")
        .options(endpoint=endpoint, stream=stream, startingOffsets="earliest")
        .load()
    )


@dp.materialized_view(comment="What each item has brought in")
def sales() -> DataFrame:
    return spark.read.table("orders").groupBy("item").agg(F.sum("price").alias("sum"))
