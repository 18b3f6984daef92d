"""Streams as views."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_headwater import catalog
from pyspark_headwater.catalog import register_streams, view_names
from pyspark_headwater.errors import InvalidOption
from tests.spark.world import World


def test_names_are_words_and_differ() -> None:
    names = view_names(["shop/orders", "shop-orders", "Shop/Orders", "7", "é", "streams"])
    assert names == {
        "s_7": "7",
        "Shop_Orders": "Shop/Orders",
        "shop_orders_2": "shop-orders",
        "shop_orders_3": "shop/orders",
        "streams_2": "streams",
        "s_": "é",
    }


def test_streams_are_listed_and_read_as_tables(spark: SparkSession, world: World) -> None:
    world.stream("orders", [{"id": 1, "price": 2.5}, {"id": 2, "price": 4.0}])
    world.stream("raw", content_type="text/plain").append(b"hello")
    schemas = {world.name("orders"): "id long, price double"}
    asked: Any = {"schemas": schemas, "prefix": "views_"}
    found = register_streams(spark, world.url, f"{world.prefix}/*", **asked)
    orders, raw = sorted(found)
    assert [found[orders], found[raw]] == [world.name("orders"), world.name("raw")]
    assert spark.sql(f"SELECT sum(price) FROM {orders}").collect()[0][0] == 6.5
    assert spark.sql(f"SELECT value FROM {raw}").collect()[0].value == b"hello"
    listed = spark.sql("SELECT view, stream, type FROM views_streams ORDER BY view").collect()
    assert [row.type for row in listed] == ["application/json", "text/plain"]
    assert [row.view for row in listed] == [orders, raw]
    world.client.stream(world.name("orders")).append({"id": 3, "price": 1.0})
    assert spark.table(orders).count() == 2
    register_streams(spark, world.url, f"{world.prefix}/*", **asked)
    assert spark.table(orders).count() == 3


def test_no_streams_make_an_empty_list(spark: SparkSession, world: World) -> None:
    assert register_streams(spark, world.url, f"{world.prefix}/*", prefix="none_") == {}
    assert spark.table("none_streams").collect() == []


def test_too_many_are_refused(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "VIEWS_MAX", 1)
    world.stream("a")
    world.stream("b")
    with pytest.raises(InvalidOption, match="narrow the pattern"):
        register_streams(spark, world.url, f"{world.prefix}/*")
