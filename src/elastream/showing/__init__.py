"""What is shown of a run, as values: the page, the report and the command line stand on it.

views            what there is to show
as_views         made of what the manager produces: windows, proposals, decisions, events     health   in one word
history, totals  what is kept of a run: bounded, and counts that only grow                    points   for charts
"""
