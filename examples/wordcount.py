"""The word count of the DS2 paper (§5.2), scaled to a laptop, on Spark: `make run`.

A record has a known cost inside the JVM, so the right parallelism is known by arithmetic: a sentence takes 5 ms
and a word 1 ms, a sentence has 5 words. 360 sentences a second keep 1.8 instances of `words` and 1.8 of `counts`
busy. Waiting needs no core, so many instances fit on two cores; what a batch costs besides is real.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.generator import SCHEMA

SENTENCE_MS = 5
WORD_MS = 1

pipeline = Pipeline("wordcount")
pipeline.feed("sentences", schema=SCHEMA)

load = {"steps": [[0, 360], [75, 720], [140, 240]]}
"""For `elastream run`: what the generator writes to the feed, as in a scenario."""


def costing(frame: DataFrame, milliseconds: int) -> DataFrame:
    """Every record takes so long, without using a core."""
    return frame.where(F.expr(f"reflect('java.lang.Thread', 'sleep', {milliseconds}L) != ''"))  # it gives 'null'


@pipeline.operator(reads="sentences", max_parallelism=12)
def words(sentences: DataFrame) -> DataFrame:
    return costing(sentences, SENTENCE_MS).select(F.explode(F.split("line", " ")).alias("word"))


@pipeline.operator(reads="words", state_partitions=12, output_mode="update")
def counts(words: DataFrame) -> DataFrame:
    return costing(words, WORD_MS).groupBy("word").count()
