"""Where instances run: nodes, the delays between them, and which of them joins or leaves."""

from elastream.nodes.pool import Node, NodePool

__all__ = ["Node", "NodePool"]
