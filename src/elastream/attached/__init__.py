"""Streaming jobs of others, as they are: how large they need to be, and executors that follow it.

batch, schedule, model, load, sizing, bounds   pure: what a batch costs on n cores, and the fewest executors
policy                                         the same as a policy of the manager
from_spark                                     pure: from Spark's own words to those values
queries, executors, engine                     thin: what a session tells, and the client that it asks
attaching, submitting, advising                the three ways in: a line, a command, from outside
"""
