"""The command line: a thin layer over the library."""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Run the `m3b` command; exits with 0 (completed), 1 (any other end of a run) or 2 (wrong use)."""
    from m3b.cli.app import app
    from m3b.errors import M3bError

    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("Warning: %(message)s"))
    logging.getLogger("m3b").addHandler(handler)
    try:
        app(prog_name="m3b")
    except M3bError as error:
        from m3b.cli.output import print_error

        print_error(error)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has closed it, as with `| head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a path that cannot be read or written
        from m3b.cli.output import print_error

        print_error(error)
        sys.exit(2)
