"""Measure what must stay cheap: `uv run python -m tests.benchmarks`. Exits with 1 if a limit is broken.

Each ratio is the median of nine, of batches that were timed in turns on this machine, over loopback only. Processor
time is a share of one core. It reads /proc, so it runs on Linux.
"""

from __future__ import annotations

import sys

import anyio

from tests.benchmarks import calls, durable, guard, polling, starts
from tests.benchmarks.pairs import HEADER

SECONDS = 360


async def main() -> int:
    sys.stdout.write(f"{HEADER}\n")
    held = True
    with anyio.fail_after(SECONDS):
        for measure in (starts.rows, guard.rows, calls.rows, durable.rows, polling.rows):
            for row in await measure():
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
                held = held and row.holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main))
