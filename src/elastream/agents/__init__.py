"""Agents that read metrics beside whatever executes operators, and the master that evaluates rules over them.

wire, messages     what goes over the connection: frames, and what they say; numbers of readings that have come
subscription       which metrics are wanted of which operator: those that a rule or a view looks at
master             who is connected, what they read, rounds          master_server   the same on a socket
agent              what to read when, what is not acknowledged yet   agent_client    the same on a socket
os_metrics         from the operating system                         engine_metrics  from the engine
adaptor            the four calls by which an engine is scaled       monitored       an engine for the manager:
security           tokens and certificates                                           agents read, the adaptor acts
run                the master as a whole, with the manager, its store and a recording
lease              who of several masters leads                      sqlite_lease    the same in the state's file
"""
