"""What checks the state machines: every interleaving of small systems, seeded runs of larger ones."""
