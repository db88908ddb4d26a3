"""Everything that a bare machine needs, in one archive."""

import lzma
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

NAME = "sluice-gpu-check"
# As SLUICE_CUDA_ARCHITECTURES: machine code for Hopper, and PTX of it for later GPUs.
ARCHITECTURES = "90"
# From the source: what runs there, and what the programs read.
FILES = ("tools/gpu-check", "tools/gpu_check", "tools/make-checkpoint", "tools/demo-model", "tests/data/models")


def filters(size):
    """Machine code of the CPU compresses better with absolute addresses; programs repeat each other's parts, far apart."""
    return [{"id": lzma.FILTER_X86},
            {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": min(max(size, 1 << 16), 256 << 20)}]


def without_owner(entry):
    """None for what Python has left behind."""
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def pack(root, programs, version, to):
    with tempfile.TemporaryDirectory() as scratch:
        plain, said = pathlib.Path(scratch) / "tar", pathlib.Path(scratch) / "version"
        said.write_text(version + "\n", encoding="utf-8")
        with tarfile.open(plain, "w") as archive:
            for program in programs:
                stripped = pathlib.Path(scratch) / program.name
                subprocess.run(["strip", "-o", stripped, program], check=True)
                archive.add(stripped, f"{NAME}/bin/{program.name}", filter=without_owner)
                print(f"{program.name}: {stripped.stat().st_size / 1e6:.1f} MB")
            for name in FILES:
                archive.add(root / name, f"{NAME}/{name}", filter=without_owner)
            archive.add(said, f"{NAME}/version", filter=without_owner)
        with open(plain, "rb") as whole, lzma.open(to, "wb", filters=filters(plain.stat().st_size)) as file:
            shutil.copyfileobj(whole, file, 1 << 20)
    print(f"{to}: {to.stat().st_size / 1e6:.1f} MB")
