"""The run as others see it: a live page, REST with its stream of updates, Prometheus."""
