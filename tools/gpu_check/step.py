"""A step: one program, or several at once, with a time-out of its own; and what it gives."""

import collections
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MAIN = "the model"  # the checkpoint of --shape, or the model of --model

# take(context, timeout) gives a result (results.py). model: the checkpoint that it waits for, MAIN or a shape.
Step = collections.namedtuple("Step", "name group timeout take model", defaults=(None,))
# Programs by their names, models by MAIN or shape, the environment of children, the group's log by log(group), and the shape of
# models that steps make in `scratch` (none: the model is theirs, too).
Context = collections.namedtuple("Context", "programs models env log shape scratch")


def result_of(ran, found=None):
    status = "timed out" if ran.status is None else "passed" if ran.status == 0 else "failed"
    result = {"status": status, "seconds": round(ran.seconds, 1)}
    if ran.fault():
        result["why"] = ran.fault()
    return result | ({"found": found} if found else {})


def skipped(why):
    return {"status": "skipped", "why": why}
