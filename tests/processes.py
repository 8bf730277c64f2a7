"""Several Python processes that find each other as those of torchrun do, and none of them left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def free_port() -> int:
    """A port on this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun tells a process."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in told.items()}}


def run_processes(
    arguments: Sequence[str | Path], world: int, folder: Path, limit: float = 120, codes: Sequence[int] = (0,)
) -> list[str]:
    """Run ``python ARGUMENTS`` in several processes of one group; what each wrote on standard error.

    All are killed when one ends with a code that was not expected, or after ``limit`` seconds; both fail the test.
    """
    port, command = free_port(), [sys.executable, *map(str, arguments)]
    logs = [folder / f"process-{rank}.log" for rank in range(world)]
    processes: list[subprocess.Popen] = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as file:
                told = environment(rank, world, port)
                processes.append(
                    subprocess.Popen(command, env=told, stdout=file, stderr=file, cwd=folder, start_new_session=True)
                )
        end = time.monotonic() + limit
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            if any(process.poll() not in (None, *codes) for process in processes):
                break
            time.sleep(0.05)
        found = [process.poll() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    written = [log.read_text() for log in logs]
    assert all(code in codes for code in found), f"exit codes {found}\n" + "\n".join(text[-3000:] for text in written)
    return written
