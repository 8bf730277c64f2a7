"""``python -m transformer_lib``: the command ``transformer-lib``."""

import os
import signal
import sys
from typing import Any


def catch(number: int, handler: Any) -> None:
    """Handle a signal, unless it is ignored from the start, as Ctrl-C is in the background of a script."""
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, handler)


def main() -> int:
    """The command-line program; Ctrl-C and SIGTERM end it without a traceback, even while PyTorch is being imported."""
    catch(signal.SIGINT, lambda *_: os._exit(130))
    if sys.argv[1:] == ["--version"]:  # without waiting for PyTorch
        from . import __version__

        print(f"transformer-lib {__version__}")
        return 0
    from .translation.cli import main as command

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    catch(signal.SIGINT, signal.default_int_handler)
    catch(signal.SIGTERM, stop)
    return command()


if __name__ == "__main__":
    sys.exit(main())
