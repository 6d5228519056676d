"""The command `progressor`, also as `python -m progressor`: Ctrl-C ends it from its first moment on.

Rule: nothing is imported here but what Ctrl-C needs. The command itself takes the best part of a second.
"""

import signal


def main() -> None:
    """Run the command of this OS process's arguments."""
    # Python's own handler would print a traceback of whatever is being imported.
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from progressor.cli.main import main as run  # noqa: PLC0415 - Ctrl-C comes first

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
