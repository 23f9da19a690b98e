"""The loop: when to ask, when to believe, when to act, when to take it back."""
