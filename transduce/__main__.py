"""python -m transduce."""

import sys


def main() -> None:
    """Run the command line."""
    from transduce.cli import run  # not above: importing this module costs nothing

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
