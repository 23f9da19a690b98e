"""Instances that decide for themselves: the decision, the protocol, the locks, what checks them. No I/O here."""
