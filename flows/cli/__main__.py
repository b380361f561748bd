"""`python -m flows.cli`, where the console script is not installed."""

from flows.cli import main

main()
