"""The tables and figures of the papers as experiments that run and compare themselves to them."""
