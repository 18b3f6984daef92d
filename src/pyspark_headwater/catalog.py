"""Streams as tables of SQL, registered by one call.

    from pyspark_headwater.catalog import register_streams

    register_streams(spark, "http://localhost:4437", "shop/**")
    spark.sql("SELECT count(*) FROM shop_orders")

A Spark catalog is a JVM class, which a Python package cannot provide. So each stream becomes a
temporary view of the session, and one more view lists them. A view always shows what its stream
held when it was first queried; another call updates all views, and adds streams created since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import SparkSession

from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.options import read_options
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import wire_to

LIST_VIEW: Final = "streams"
VIEWS_MAX: Final = 500
# Each view asks a Python worker for its columns, which is mostly waiting.
_AT_ONCE: Final = 4


def register_streams(
    spark: SparkSession,
    endpoint: str,
    pattern: str = "**",
    *,
    token: str | None = None,
    schemas: Mapping[str, str] | None = None,
    prefix: str = "",
) -> dict[str, str]:
    """Make a view of every stream that matches, and a view `streams` that lists them.

    Args:
        pattern: which streams, as in the option `streamPattern`.
        schemas: columns for some of the streams, by path; the others have those of a message.
        prefix: what the names of the views begin with.

    Returns:
        The path of the stream for each view.
    """
    options = {"endpoint": endpoint, **({} if token is None else {"token": token})}
    asked = read_options({**options, "streamPattern": pattern}, "batch read")
    found = Selection(asked, wire_to(asked.server)).listed()
    if len(found) > VIEWS_MAX:
        raise InvalidOption(
            f"{len(found)} streams match {pattern!r}, more than {VIEWS_MAX}: narrow the pattern"
        )
    names = view_names((one.name for one in found), prefix)

    def register(view: str) -> None:
        stream = names[view]
        reader = spark.read.format("headwater").options(**options, stream=stream)
        schema = (schemas or {}).get(stream)
        frame = (reader if schema is None else reader.schema(schema)).load()
        frame.createOrReplaceTempView(view)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(register, names))
    views = {stream: view for view, stream in names.items()}
    rows = [(views[one.name], one.name, one.content_type, one.tail) for one in found]
    listing = spark.createDataFrame(rows, "view string, stream string, type string, tail string")
    listing.createOrReplaceTempView(f"{prefix}{LIST_VIEW}")
    return names


def view_names(streams: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Paths as SQL identifiers without quotes, unique even ignoring case."""
    names: dict[str, str] = {}
    taken = {f"{prefix}{LIST_VIEW}".lower()}
    for stream in sorted(streams):
        plain = prefix + re.sub(r"\W+", "_", stream, flags=re.ASCII).strip("_")
        plain = f"s_{plain}" if not plain or plain[0].isdigit() else plain
        name, number = plain, 2
        while name.lower() in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name.lower())
        names[name] = stream
    return names
