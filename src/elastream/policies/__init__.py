"""How many instances each operator should have: pure functions from a snapshot to a proposal."""
