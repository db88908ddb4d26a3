"""What the machine is, and where CUDA's libraries are on it."""

import glob
import os
import shutil
import subprocess

GPU = ("name", "compute_cap", "memory.total", "driver_version")
STATE = ("memory.free", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "pcie.link.gen.current",
         "pcie.link.gen.max", "pcie.link.width.current", "power.limit", "temperature.gpu", "ecc.mode.current")
LIBRARY = "libcublasLt.so.*[0-9]"
SECONDS = 60  # for a program that only says something


def output_of(*command):
    """Without the newline at its end; None where the program is missing or fails."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def ask_gpu(fields):
    said = output_of("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    return dict(zip(fields, said.splitlines()[0].split(", "))) if said else None


def find_gpu():
    """The first GPU as nvidia-smi names its parts; None where there is none."""
    return ask_gpu(GPU)


def count_gpus():
    return len((output_of("nvidia-smi", "-L") or "").splitlines())


def package_folders():
    """Where the Python on PATH, which may be another than this, has its packages."""
    said = output_of("python3", "-c", "import sys; print('\\n'.join(p for p in sys.path if p))")
    return said.splitlines() if said else []


def library_folders():
    """Folders with cuBLASLt, those of the toolkit first."""
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places += [os.path.join(os.environ[v], "lib64") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    places += ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64"]
    places += [os.path.join(glob.escape(p), "nvidia/*/lib") for p in package_folders()]
    places += ["/opt/*/lib/python3*/site-packages/nvidia/*/lib", "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib"]
    found = [os.path.dirname(file) for place in places if place for file in sorted(glob.glob(os.path.join(place, LIBRARY)))]
    return list({os.path.realpath(folder): folder for folder in reversed(found)}.values())[::-1]


def environment(folders):
    """For the programs: with the folders of libraries, after those that are named already."""
    path = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    path += [folder for folder in folders if folder not in path]
    return os.environ | ({"LD_LIBRARY_PATH": ":".join(path)} if path else {})


def memory_gb(name):
    """A figure of /proc/meminfo."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 / 1e9 for line in file if line.startswith(name + ":"))


def free_disk_gb(folder):
    return shutil.disk_usage(folder).free / 1e9


def describe(folders, scratch):
    return {
        "state": ask_gpu(STATE) or "nvidia-smi does not say",
        "cublaslt": folders or "not found: prompts are computed 16 rows at a time, and tests of its products fail",
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": memory_gb("MemTotal"), "free_memory_gb": memory_gb("MemAvailable"),
        "scratch": str(scratch), "free_disk_gb": free_disk_gb(scratch),
        "compute_sanitizer": shutil.which("compute-sanitizer") or "not found",
        "ncu": shutil.which("ncu") or "not found",
    }
