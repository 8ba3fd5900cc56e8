"""Kill servers, pipes and hosts at random, and compare what everybody was told: `uv run python -m tests.chaos`.

Real processes on this machine, over a Unix socket and over loopback. Exits with 1, and says what is not so, if anything
that was acknowledged was lost, doubled, exchanged or made up. It reads /proc, so it runs on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from steersman.serving.state_files import StateFiles
from tests.chaos.checking import differences, read_journal
from tests.chaos.human import Human
from tests.chaos.records import read

WAYS: Final = {"one": "legacy", "two": "modern", "three": "http", "four": "legacy"}
LOOK: Final = 0.02
FINISH_SECONDS: Final = 60
TARGETS: Final = ("server", "server", "server", "pipe", "pipe", "host")
SHOWN: Final = 20


@dataclass
class Run:
    """One run in a directory of its own."""

    directory: Path
    seed: int
    token: str = ""
    kills: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    hosts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def record(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"

    def start(self, name: str) -> None:
        self.kills["started"] += 1
        arguments = [WAYS[name], str(self.state), name, str(self.seed + self.kills["started"])]
        with (self.directory / f"{name}.err").open("ab") as errors:
            self.hosts[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.host", *arguments],
                stdout=errors,
                stderr=errors,
                env={**os.environ, "STEERSMAN_TOKEN": self.token},
            )

    def server(self) -> int | None:
        """The server that serves; none between two."""
        try:
            pid = int(json.loads(StateFiles(self.state).description.read_text())["pid"])
            return pid if str(self.state).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError):
            return None

    def pipe(self, name: str) -> int | None:
        """The pipe of a host; none if it has none now."""
        pids = [entry["pid"] for entry in read(self.record(name)) if entry["event"] == "pipe"]
        try:
            status = Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2].split()
        except (IndexError, OSError):
            return None
        return pids[-1] if int(status[1]) == self.hosts[name].pid else None

    def kill(self, dice: random.Random) -> None:
        """Kill something that is there, if it is."""
        target, name = dice.choice(TARGETS), dice.choice(list(self.hosts))
        pid = {"server": self.server(), "pipe": self.pipe(name), "host": self.hosts[name].pid}[target]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.kills[target] += 1

    def look_after_hosts(self) -> bool:
        """Start again those that were killed. Returns whether any is not done."""
        running = False
        for name, process in list(self.hosts.items()):
            code = process.poll()
            if code == -signal.SIGKILL:
                self.start(name)
            elif code:
                errors = (self.directory / f"{name}.err").read_text()[-2000:]
                self.faults.append(f"host {name} ended with {code}: {errors}")
                del self.hosts[name]
            running = running or code in (None, -signal.SIGKILL)
        return running

    def command(self, *words: str) -> str:
        line = [sys.executable, "-m", "steersman", *words, "--state-dir", str(self.state)]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def storm(run: Run, seconds: float) -> None:
    """Everything at once, for so long; then hosts finish what they began."""
    dice = random.Random(run.seed)
    run.token = run.command("token", "new", "chaos")
    human = Human(run.state, run.record("human"), random.Random(run.seed))
    thread = threading.Thread(target=human.run)
    thread.start()
    for name in WAYS:
        run.start(name)
    try:
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + 3
        while time.monotonic() < end and not run.faults:
            time.sleep(LOOK)
            run.look_after_hosts()
            if time.monotonic() > next_kill:
                run.kill(dice)
                next_kill = time.monotonic() + dice.expovariate(1.2)
        run.directory.joinpath("finish").touch()
        end = time.monotonic() + FINISH_SECONDS
        while run.look_after_hosts() and time.monotonic() < end:
            time.sleep(LOOK)
    finally:
        human.stop()
        thread.join()
        for name, process in run.hosts.items():
            if process.poll() is None:
                run.faults.append(f"host {name} is not done after {FINISH_SECONDS} s")
                process.kill()
            process.wait()
    if human.failure is not None:
        run.faults.append(f"the human was refused: {human.failure!r}")


def examine(run: Run) -> None:
    """Kill the server a last time, and see what lies there; and whether the next one can use it."""
    pid = run.server()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    copy = run.directory / "copy"
    copy.mkdir()
    for path in run.state.glob("journal.sqlite3*"):
        shutil.copy(path, copy)
    hosts = {name: read(run.record(name)) for name in WAYS}
    human = read(run.record("human"))
    stored = read_journal(copy / "journal.sqlite3")
    run.faults += differences(stored, hosts, human)
    shown = {card["card_id"] for card in json.loads(run.command("answer", "--json"))["waiting"]}
    run.command("stop")
    orphaned = {row["card_id"] for row in stored.questions.values() if row["settled_at"] is None}
    if shown != orphaned:
        run.faults.append(f"orphaned are {sorted(orphaned)}, and shown are {sorted(shown)}")
    events = Counter(entry["event"] for log in hosts.values() for entry in log)
    told = Counter(entry["told"] for entry in human if entry["event"] == "told")
    say(f"killed: {dict(run.kills)}")
    say(f"accepted: {events['accepted']}, read: {events['read']}, refused: {events['refused']}")
    say(f"answered: {events['answered']}, aborted: {events['unanswered']}, the human was told: {dict(told)}")
    say(f"orphaned at the end: {len(orphaned)}; connections lost: {events['lost']}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="how long things are killed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args(arguments)
    say(f"seed {options.seed}, {options.seconds:.0f} s")
    with TemporaryDirectory(prefix="steersman-chaos-") as directory:
        run = Run(Path(directory), options.seed)
        storm(run, options.seconds)
        examine(run)
    for fault in run.faults[:SHOWN]:
        say(f"NOT SO: {fault}")
    say(f"{len(run.faults)} differences")
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
