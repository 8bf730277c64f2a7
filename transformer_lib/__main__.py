"""``python -m transformer_lib``: the command ``transformer-lib``."""

import os
import signal
import sys


def main() -> int:
    """The command-line program; Ctrl-C and SIGTERM end it without a traceback, even while PyTorch is being imported."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if sys.argv[1:] == ["--version"]:  # without waiting for PyTorch
        from . import __version__

        print(f"transformer-lib {__version__}")
        return 0
    from .translation.cli import main as command

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop)
    return command()


if __name__ == "__main__":
    sys.exit(main())
