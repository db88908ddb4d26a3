"""A measurement's log: one JSON object a line, first what was measured, then each run."""

import json

from benchmark.printing import fail


class RunLog:
    """Opened again with the same setup, a log goes on; with another one it is refused."""

    def __init__(self, path, setup):
        self.path = path
        self.runs = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self.read(setup)
        else:
            self.append({"setup": setup})

    def read(self, setup):
        text = self.path.read_text(encoding="utf-8")
        whole = text[:text.rfind("\n") + 1]
        if whole != text:  # killed while it wrote a line
            self.path.write_text(whole, encoding="utf-8")
        lines = [json.loads(line) for line in whole.splitlines()]
        before = lines[0].get("setup", {}) if lines else {}
        different = [key for key in {**before, **setup} if before.get(key) != setup.get(key)]
        if different:
            fail(f"{self.path} is the log of another measurement ({', '.join(different)}): "
                 "remove it or give another --log")
        self.runs = lines[1:]

    def append(self, line):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def add(self, run):
        self.runs.append(run)
        self.append(run)

    def pair(self, comparison, turn):
        """That round's last run of each program of the comparison, by the program's name."""
        return {run["program"]: run for run in self.runs
                if (run["comparison"], run["round"]) == (str(comparison), turn)}

    def failures(self, program, percent):
        """Why that program failed under that limit, each time; empty once it has come through."""
        runs = [run for run in self.runs
                if (run["program"], run["percent"]) == (program, percent)]
        failed = [run["failure"] for run in runs if run["failure"]]
        return failed if len(failed) == len(runs) else []
