"""A report of a recorded run: one HTML file that needs nothing else, and its pictures beside it.

timeline.py   the windows of a recording, laid end to end
story.py      what happened, as values: the input, the decisions and their effect, what waited, the cost
model.py      a simulated model of the pipeline, from what was measured of it
what_if.py    what other policies would have done on it, and how far the model can be trusted
figures.py    the pictures
page.py       all of it as HTML
"""
