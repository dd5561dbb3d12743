"""What pipelines typically do, in one JVM that notes the classes it meets: `python -m … DIRECTORY`."""

from __future__ import annotations

import sys
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

SECONDS_TO_END = 500


def work(spark: SparkSession, directory: str) -> None:
    """Each reader and writer, joins, windows, SQL and a Python function."""
    numbers = spark.range(0, 1000, 1, 2).select("id", (f.col("id") % 7).alias("kind"))
    for form in ("parquet", "json", "csv", "orc"):
        numbers.write.format(form).mode("overwrite").save(f"{directory}/{form}")
        spark.read.format(form).schema("id long, kind long").load(f"{directory}/{form}").count()
    numbers.write.partitionBy("kind").parquet(f"{directory}/parts")
    stored = spark.read.parquet(f"{directory}/parts")
    stored.createOrReplaceTempView("numbers")
    spark.sql("select kind, count(*) n, max(id) top from numbers group by kind order by n").collect()
    ranked = stored.withColumn("rank", f.row_number().over(Window.partitionBy("kind").orderBy("id")))
    ranked.join(numbers, "id", "left_anti").distinct().collect()
    stored.select(f.udf("long")(lambda number: number + 1)("id").alias("next")).agg(f.sum("next")).collect()
    stored.limit(10).toPandas()


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    work(spark, sys.argv[1])
    gateway = cast(Any, SparkContext._gateway)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its input does, and writes the archive then
    gateway.proc.wait(SECONDS_TO_END)


if __name__ == "__main__":
    main()
