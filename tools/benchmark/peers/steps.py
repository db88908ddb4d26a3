"""What a peer prints: seconds and bytes from disk of every pass over the weights."""

import json
import sys
import time


def bytes_from_disk():
    """What this process, all its threads together, made the disk read so far."""
    with open("/proc/self/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes:"))


class Steps:
    """The first step is the prompt's pass, each later one makes a token from the one before."""

    def __init__(self):
        self.marks = []
        self.token_ids = []

    def start(self):
        self.marks.append((time.monotonic(), bytes_from_disk()))

    def token(self, token_id):
        self.token_ids.append(int(token_id))
        self.start()

    def print(self):
        pairs = list(zip(self.marks, self.marks[1:]))
        print()  # whatever the libraries wrote, the result has the last line for itself
        print(json.dumps({"step_seconds": [after[0] - before[0] for before, after in pairs],
                          "step_bytes": [after[1] - before[1] for before, after in pairs],
                          "token_ids": self.token_ids}))
        sys.stdout.flush()
