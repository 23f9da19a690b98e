"""Load for pipelines on Spark: the processes that write to feeds, how they end, and the events of Nexmark."""
