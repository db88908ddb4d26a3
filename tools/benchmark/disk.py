"""The bound of a cold load: how fast fio reads the same files past the page cache."""

import dataclasses
import json
import os
import shutil
import statistics
import subprocess

BLOCK_SIZES = ("256k", "512k", "1m", "2m", "4m", "8m")
DEPTHS = (1, 4, 16, 64)
JOBS = (1, 2, 4)
ENGINES = ("io_uring", "libaio")
CANDIDATES = 4
ROUNDS = 3
SWEEP_SECONDS = 2  # of one setting, at most


@dataclasses.dataclass(frozen=True)
class Setting:
    engine: str = "io_uring"
    block_size: str = "1m"
    depth: int = 16
    jobs: int = 1

    def __str__(self):
        return f"{self.engine} bs={self.block_size} iodepth={self.depth} numjobs={self.jobs}"


def fio_command(files, setting, seconds=None):
    command = ["fio", "--output-format=json", "--rw=read", "--readonly", "--direct=1", "--thread",
               "--file_service_type=sequential", f"--ioengine={setting.engine}",
               f"--bs={setting.block_size}", f"--iodepth={setting.depth}"]
    if seconds:
        command.append(f"--runtime={seconds}")
    # Each job reads files of its own, so that every byte is read once.
    for job in range(min(setting.jobs, len(files))):
        names = ":".join(str(file).replace(":", r"\:") for file in files[job::setting.jobs])
        command += [f"--name=job{job}", f"--filename={names}"]
    return command


def fio_read(files, setting, seconds=None):
    """Bytes a second."""
    result = subprocess.run(fio_command(files, setting, seconds), capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        raise RuntimeError(f"fio with {setting} failed: {result.stderr.strip()[-300:]}")
    reads = [job["read"] for job in json.loads(result.stdout[result.stdout.index("{"):])["jobs"]]
    milliseconds = max(read["runtime"] for read in reads)
    return sum(read["io_bytes"] for read in reads) / max(milliseconds, 1) * 1000


def best_fio_setting(files, progress):
    """The fastest setting. A sweep over block size and depth names candidates; as runs of one
    setting differ by more than settings do, the candidates then take turns: best median wins.
    """
    def measure(settings, rounds):
        rates = {setting: [] for setting in settings}
        for _ in range(rounds):
            for setting in list(rates):
                try:
                    rates[setting].append(fio_read(files, setting, SWEEP_SECONDS))
                except RuntimeError as error:  # an engine that this system forbids, say
                    progress(str(error))
                    del rates[setting]
        medians = {setting: statistics.median(found) for setting, found in rates.items()}
        for setting, rate in medians.items():
            progress(f"{setting}: {rate / 2**30:.2f} GiB/s")
        if not medians:
            raise RuntimeError("fio could not read the files with any of these settings")
        return sorted(medians, key=medians.get, reverse=True)

    engine = measure([Setting(engine) for engine in ENGINES], rounds=1)[0].engine
    swept = measure([Setting(engine, size, depth) for size in BLOCK_SIZES for depth in DEPTHS],
                    rounds=1)
    variants = [dataclasses.replace(swept[0], engine=other, jobs=jobs)
                for other in ENGINES for jobs in JOBS]
    progress(f"the best and their variants, {ROUNDS} rounds:")
    return measure(dict.fromkeys([*swept[:CANDIDATES], *variants]), ROUNDS)[0]


def have_fio():
    return shutil.which("fio") is not None


def drop_page_cache(files):
    """Everything when root; otherwise what can be dropped of these files."""
    os.sync()
    if os.geteuid() == 0:
        try:
            with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as control:
                control.write("3\n")
            return
        except OSError:  # root in a container may not
            pass
    for name in files:
        with open(name, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
