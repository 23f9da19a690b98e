"""What Spark's operator submits: the command, which finds the session's settings in its environment."""

from elastream.cli import main

main()
