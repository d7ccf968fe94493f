"""The entry point of `transduce` and of `python -m transduce`."""

import gc
import sys


def _run() -> int:
    from transduce.errors import TransduceError

    try:
        from transduce.cli.commands import run
    except TransduceError as error:  # a system that is not supported
        print(f"transduce: {error}", file=sys.stderr)
        return 2
    return run(sys.argv[1:])


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        # Imported here, so that importing this module is fast.
        from transduce.cli.memory_limit import is_limited, run_in_child
        from transduce.cores import limit_threads

        limit_threads()
        status = run_in_child(_run) if is_limited() else _run()
    except KeyboardInterrupt:  # while modules are imported
        print("transduce: interrupted", file=sys.stderr)
        status = 130

    # Without this, Python searches all objects of torch for garbage before it exits, which is a
    # fifth of the time of a short translation. Triton reports objects that are left, so that
    # they must be collected if it was used.
    if "triton._C.libtriton" not in sys.modules:
        gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
