"""`python -m m3b`."""

from m3b.cli import main

main()
