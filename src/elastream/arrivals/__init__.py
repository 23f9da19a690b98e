"""What arrives at a source: rates over time as values, the traces that come with them, how files write them."""
