"""Load for pipelines on Spark: the process that writes to a feed, and how such a process ends."""
