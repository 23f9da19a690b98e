"""The winning bid of every auction, which Q4 and Q9 ask for: a join within a time, and the highest of each when it
has ended."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LATE, LONGEST = "4 seconds", "1 minute"
"""How late events may be, and how long an auction lasts at most (at 60 events a second or more)."""


def in_time(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Each bid with its auction, while that was open."""
    opened = auctions.withWatermark("at", LATE).select(
        "id", "category", "seller", F.col("at").alias("opened"), "expires"
    )
    bid = bids.withWatermark("at", LATE).select("auction", "bidder", "price", "at")
    open_then = (F.col("at") >= F.col("opened")) & (F.col("at") <= F.col("expires"))
    soon = F.col("at") <= F.col("opened") + F.expr(f"interval {LONGEST}")  # lets Spark forget old auctions
    return opened.join(bid, (F.col("id") == F.col("auction")) & open_then & soon)


def winning(in_time: DataFrame) -> DataFrame:
    """Of each auction that has ended the highest bid, the first of several as high."""
    ended = in_time.withWatermark("expires", f"{LONGEST} {LATE}").groupBy("id", "category", "expires")
    best = F.max(F.struct("price", (-F.unix_millis("at")).alias("before"), "bidder")).alias("best")
    return ended.agg(best).select("id", "category", "expires", "best.price", "best.bidder")
