"""What was found, on disk as soon as it is known: results.json, and summary.md, which says the same to a reader."""

import json
import os

FAILED = ("failed", "timed out")


def write_whole(path, text):
    """A reader, and whoever goes on after a cut, finds the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


class Results:
    """A step's result: status (passed, failed, timed out, skipped), seconds, and what it found."""

    def __init__(self, out, head):
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        path = out / "results.json"
        self.all = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.of_another = self.all.get("version", head["version"]) != head["version"]
        self.steps = self.all.setdefault("steps", {})
        self.all |= head

    def has(self, name):
        return name in self.steps

    def forget(self, names):
        for name in names:
            self.steps.pop(name, None)

    def put(self, name, result):
        self.steps[name] = result
        write_whole(self.out / "results.json", json.dumps(self.all, indent=2) + "\n")
        write_whole(self.out / "summary.md", self.markdown())
        print(f"{name}: {line_of(result)}", flush=True)

    def failed(self):
        return [name for name, result in self.steps.items() if result["status"] in FAILED]

    def markdown(self):
        gpu = self.all["gpu"]
        lines = [f"# {gpu['name']}", "",
                 f"Compute capability {gpu['compute_cap']}, {gpu['memory.total']}, driver {gpu['driver_version']}; "
                 f"{self.all['version']}.", ""]
        for name, result in self.steps.items():
            lines += [f"- {name}: {line_of(result)}", *lines_below(result)]
        return "\n".join(lines) + "\n"


def plain(figures):
    return [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()
            if isinstance(v, (int, float, str))]


def line_of(result):
    """Status, where it is not the expected one, the reason, single figures, and lists of names."""
    found = result.get("found", {})
    words = [result["status"]] if result["status"] != "passed" else []
    words += [result["why"]] if "why" in result else []
    words += plain(found)
    words += [f"{k}: {', '.join(v)}" for k, v in found.items() if isinstance(v, list) and v and isinstance(v[0], str)]
    return "; ".join(words) or "passed"


def lines_below(result):
    return [f"  - {k}: {', '.join(plain(v))}" for k, v in result.get("found", {}).items() if isinstance(v, dict)]
