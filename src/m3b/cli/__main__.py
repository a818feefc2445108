"""`python -m m3b.cli`."""

from m3b.cli import main

main()
