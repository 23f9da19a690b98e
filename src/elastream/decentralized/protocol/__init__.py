"""What an instance decides, and what it says to its neighbours, as values: no socket, no clock, no thread.

load_meter, decision   what arrives, and whether to duplicate or to leave      capacity_ramp  what one can do
messages, instance     the protocol: what is said, and what it changes         sharing    who gets which records
neighbour_locks        the same where neighbours never scale at the same time
control, link, wire    both of an instance in one value that is written down, over links that lose nothing
"""
