"""Tables in Markdown, and the words around them."""

import shlex
import statistics
import sys


def fail(message):
    sys.exit(f"bench: {message}")


def say(line=""):
    print(line, flush=True)


def spread(values, form="{:.3f}"):
    """Median, smallest and largest."""
    low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
    return f"{middle} ({low} to {high})"


def table_row(*cells):
    say("| " + " | ".join(map(str, cells)) + " |")


def table_head(*cells):
    table_row(*cells)
    table_row(*["---"] * len(cells))


def own_command():
    return f"`{shlex.join(['tools/bench', *sys.argv[1:]])}`"
