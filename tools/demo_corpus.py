#!/usr/bin/env python3
"""Text for the demo model: public-domain English prose out of Debian packages.

  bible-kjv-text   the King James Version of the Bible (1611), read with the program
  bible-kjv        of the package of that name
  r-cran-janeaustenr
                   Jane Austen's six novels (1811-1818), as an R data file

documents() returns cleaned documents, one for each chapter, as (name, text) pairs:
chapter headings and verse numbers are removed, a verse is a line, a paragraph of
prose is one line, paragraphs are separated by an empty line.  Run as a program it
writes the whole text, which is good for a look at it.
"""
import argparse
import pathlib
import re
import struct
import subprocess
import tempfile
import zlib

PACKAGES = ("bible-kjv", "bible-kjv-text", "r-cran-janeaustenr")
NOVELS = ("Emma", "Mansfield Park", "Northanger Abbey", "Persuasion",
          "Pride and Prejudice", "Sense and Sensibility")  # the order in the data file

# Whole chapters that are kept out of training and make up validation.txt.  They have
# no near-copy elsewhere (as, for instance, much of Matthew has in Mark and Luke).
VALIDATION = ("Emma 20", "Northanger Abbey 17", "Persuasion 9",
              "Pride and Prejudice 31", "Sense and Sensibility 27",
              "Ruth 2", "Esther 6", "Job 39", "Proverbs 26", "Daniel 6", "Acts 27", "James 3")


def fetch(folder):
    """Downloads PACKAGES and unpacks them under folder, without installing them."""
    for package in PACKAGES:
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for deb in pathlib.Path(folder).glob(package + "_*.deb"):
            subprocess.run(["dpkg", "-x", deb, folder], check=True)


def require(path):
    if not path.exists():
        raise SystemExit(f"{path} is missing: install {', '.join(PACKAGES)}, or use --fetch")
    return path


def kjv(root):
    """Chapters of the King James Version; a verse is a line."""
    program = require(root / "usr/bin/bible")
    data = require(root / "usr/lib/bible.data").parent
    text = subprocess.run([program, "-l99999", "-p", data, "Gen1:1-Rev22:21"], check=True,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    name, verses = None, []
    for line in text.splitlines() + [""]:
        verse = re.match(r"\s+\d+ (.*)", line)
        if verse:
            verses.append(re.sub(r"\s+", " ", verse[1]).strip())
        elif re.match(r"\S", line):  # "Genesis 1"
            if verses:
                yield name, "\n".join(verses)
            name, verses = " ".join(line.split()), []
    yield name, "\n".join(verses)


def r_strings(blob):
    """The strings of one serialized R character vector (XDR format 2 or 3)."""
    at = 14
    if struct.unpack(">i", blob[2:6])[0] >= 3:  # the name of the native encoding follows
        at += 4 + struct.unpack(">i", blob[14:18])[0]
    kind, count = struct.unpack(">ii", blob[at:at + 8])
    if kind & 255 != 16:
        raise SystemExit("the R data file holds something other than character vectors")
    at += 8
    for _ in range(count):
        size = struct.unpack(">i", blob[at + 4:at + 8])[0]
        yield blob[at + 8:at + 8 + size].decode()
        at += 8 + size


def prose(lines):
    """Joins the lines of each paragraph; drops markup, notes and ornaments."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        rows = [r for r in block.split("\n") if r.strip()]
        if not rows:
            continue
        joiner = "\n" if all(r.startswith("  ") for r in rows) else " "  # verse or prose
        text = joiner.join(re.sub(r"\s+", " ", r.strip()) for r in rows).replace("_", "")
        if re.match(r"\[|\(end of volume|[* ]+$|(volume [ivx]+|the end|finis)\.?$", text, re.I):
            continue
        paragraphs.append(re.sub(r"(?<=\S)--(?=\w)", " -- ", text))
    return "\n\n".join(paragraphs)


def austen(root):
    """Chapters of the novels; a paragraph is a line, with empty lines between them."""
    data = require(root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    for title in NOVELS:
        entry = zlib.decompressobj()  # each entry: its size, then a zlib stream
        lines = list(r_strings(entry.decompress(data[4:])))
        data = entry.unused_data
        if title.lower() != lines[0].strip().lower():
            raise SystemExit(f"{title} expected in the R data file, {lines[0]} found")
        number, chapter = 0, []
        for line in lines + ["CHAPTER 0"]:
            if re.match(r"(chapter [\dIVXL]+$|\*Vide a letter)", line.strip(), re.I):
                if number:
                    yield f"{title} {number}", prose(chapter)
                number, chapter = number + 1, []
                if line.startswith("*"):  # a foot-note and the editor's note: not the novel
                    break
            else:
                chapter.append(line)


def documents(root):
    """All documents as (name, text): those to train on and those to validate on."""
    every = [*austen(root), *kjv(root)]
    held_out = [d for d in every if d[0] in VALIDATION]
    if sorted(d[0] for d in held_out) != sorted(VALIDATION):
        raise SystemExit(f"validation chapters not all found: {[d[0] for d in held_out]}")
    return [d for d in every if d[0] not in VALIDATION], held_out


def load(root="/", download=False):
    """documents(root), or, with download, of packages fetched into a temporary folder."""
    if not download:
        return documents(pathlib.Path(root))
    with tempfile.TemporaryDirectory() as folder:
        fetch(folder)
        return documents(pathlib.Path(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default="/", help="where the packages are unpacked (default /)")
    parser.add_argument("--fetch", action="store_true", help="download them first (apt-get)")
    args = parser.parse_args()
    for part, docs in zip(("training", "validation"), load(args.root, args.fetch)):
        for name, text in docs:
            print(f"=== {part}: {name}\n{text}\n")


if __name__ == "__main__":
    main()
