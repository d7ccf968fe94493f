"""python -m transduce."""

import gc
import sys


def main() -> None:
    """Run the command line."""
    from transduce.cli.commands import run  # not above: importing this module costs nothing

    status = run(sys.argv[1:])
    if "triton._C.libtriton" not in sys.modules:  # that would complain of what is left of it
        # Else Python looks through all of torch for garbage at its end: a fifth of a short
        # translation.
        gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
