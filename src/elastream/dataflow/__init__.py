"""What runs: operators, channels, the graph they form, and a parallelism for each operator."""

from elastream.dataflow.graph import Channel, Dataflow, Operator
from elastream.dataflow.plan import Change, Plan

__all__ = ["Change", "Channel", "Dataflow", "Operator", "Plan"]
