"""tools/gpu-check from its archive, in an empty directory and environment, with shell scripts in the places of the GPU's
tools and of the programs. Each writes down that it was called."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SLUICE_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
sys.dont_write_bytecode = True
from gpu_check import pack, steps  # noqa: E402

NVIDIA_SMI = """case "$1" in
  *compute_cap*) echo "NVIDIA Test, 9.0, 81559 MiB, 580.1" ;;
  *) echo "80000 MiB, 345 MHz" ;;
esac"""
GTEST = """echo '[ RUN      ] Cuda.Adds'; echo '[       OK ] Cuda.Adds (3 ms)'
echo '[ RUN      ] Models/Gpu.Runs/tied'; echo '[       OK ] Models/Gpu.Runs/tied, where GetParam() = "x" (3 ms)'"""
SANITIZER = """shift 4; "$@" && echo '========= ERROR SUMMARY: 0 errors'"""
NCU = """echo '==PROF== noise'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","void sluice::cuda::gemv<int>(float)","Duration","us","1,004"'
echo '"1","void sluice::cuda::gemv<int>(float)","Duration","us","1,006"'"""
CUDA_BENCH = """echo '{"copy": {"rate": 1.5}}'"""
SLUICE = """while [ $# -gt 0 ]; do
  if [ "$1" = --report ]; then echo '{"memory": {"device": {"predicted_peak": 10, "ledger_peak": 8}}}' > "$2"; fi
  shift
done
echo '{"tokens_per_second": 123.4}'"""


class GpuCheckTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """An archive as --pack makes it, with scripts for programs and little of the demo model."""
        cls.made = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(cls.made.cleanup)
        root = pathlib.Path(cls.made.name) / "root"
        for name in pack.FILES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        for name in ("tools/gpu-check", "tools/make-checkpoint"):
            shutil.copy(SOURCE / name, root / name)
        shutil.copytree(SOURCE / "tools/gpu_check", root / "tools/gpu_check")
        shutil.copytree(SOURCE / "tools/demo-model", root / "tools/demo-model", ignore=shutil.ignore_patterns("*.safetensors"))
        (root / "tests/data/models").mkdir()
        said = {"sluice": SLUICE, "gpu_op_test": GTEST, "gpu_test": GTEST, "cuda_bench": CUDA_BENCH}
        programs = [write_script(root / name, text) for name, text in said.items()]
        (root / "strip").write_text('#!/bin/sh\ncp "$3" "$2"\n')
        (root / "strip").chmod(0o755)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{root}:{path}"
        try:
            pack.pack(root, programs, "commit of a test", pathlib.Path(cls.made.name) / "pack.tar.xz")
        finally:
            os.environ["PATH"] = path

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        subprocess.run(["tar", "xf", pathlib.Path(self.made.name) / "pack.tar.xz"], cwd=self.path, check=True)
        self.tools = self.path / "tools"
        for name, said in {"nvidia-smi": NVIDIA_SMI, "compute-sanitizer": SANITIZER, "ncu": NCU}.items():
            write_script(self.tools / name, said)

    def check(self, *options):
        command = [sys.executable, "-I", "sluice-gpu-check/tools/gpu-check", "--out", "out", "--scratch", "scratch", *options]
        return subprocess.run(command, cwd=self.path, env={"PATH": f"{self.tools}:/usr/bin:/bin"}, capture_output=True, text=True,
                              timeout=60, check=False)

    def program(self, name, said):
        write_script(self.path / "sluice-gpu-check/bin" / name, said)

    def results(self):
        return json.loads((self.path / "out/results.json").read_text())["steps"]

    def calls(self):
        log = self.path / "calls"
        said = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return said

    def test_all_steps_with_a_checkpoint_made_meanwhile(self):
        done = self.check("--shape", "tiny")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = self.results()
        self.assertEqual(list(found), ["machine"] + [step.name for step in steps.all_steps()])
        self.assertEqual({result["status"] for result in found.values()}, {"passed"})
        self.assertEqual(found["gpu_op_test"]["found"], {"tests": 2, "skipped": 0, "failed": []})
        self.assertEqual(found["ceilings"]["found"]["copy"]["rate"], 1.5)
        self.assertEqual(found["first step none"]["found"], {"gemv": {"runs": 2, "Duration [us]": 1005.0}})
        self.assertEqual(found["memory fp8"]["found"]["predicted_over_measured"], 1.25)
        self.assertEqual(found["memcheck attention"]["found"]["summary"], "0 errors")
        self.assertTrue((self.path / "scratch/tiny/model.safetensors.index.json").exists())
        self.assertLessEqual(len(list((self.path / "out").iterdir())), 8)
        self.assertIn("tokens_per_second 123.4", (self.path / "out/summary.md").read_text())
        self.calls()
        self.assertEqual(self.check("--shape", "tiny").returncode, 0)
        self.assertEqual([call for call in self.calls() if "nvidia-smi" not in call], [])
        again = self.check("--only", "decode fp8", "--again")  # which is a part of three names
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(sum(call.startswith("sluice") for call in self.calls()), 3)

    def test_a_step_that_hangs_is_ended_and_the_others_go_on(self):
        self.program("gpu_op_test", GTEST + "; echo '[ RUN      ] Cuda.Hangs'; sleep 60 & wait")
        done = self.check("--only", "tests", "--step-s", "3")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = self.results()
        self.assertEqual(found["gpu_op_test"]["status"], "timed out")
        self.assertEqual(found["gpu_op_test"]["found"], {"tests": 3, "skipped": 0, "failed": [], "did not end": "Cuda.Hangs"})
        self.assertEqual(found["gpu_test"]["status"], "passed")

    def test_what_fails_is_told_with_its_reason(self):
        self.program("gpu_op_test", GTEST + "; echo '[ RUN      ] Cuda.Bad'; echo '[  FAILED  ] Cuda.Bad (1 ms)'; exit 1")
        self.program("gpu_test", "echo '[  SKIPPED ] all tests'")
        self.program("sluice", "echo 'sluice: no room' >&2; exit 4")
        done = self.check("--only", "tests,disk and link")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = self.results()
        self.assertEqual(found["gpu_op_test"]["found"]["failed"], ["Cuda.Bad"])
        self.assertEqual(found["gpu_test"]["status"], "failed")
        self.assertEqual(found["disk and link"]["why"], "ended with 4; last line: sluice: no room")

    def test_a_budget_ends_between_steps_and_the_next_call_goes_on(self):
        done = self.check("--only", "tests", "--budget-s", "60")  # less than half of the second step's time
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(list(self.results()), ["machine", "gpu_op_test"])
        self.calls()
        done = self.check("--only", "tests", "--budget-s", "60")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([call for call in self.calls() if "nvidia-smi" not in call], ["gpu_test"])

    def test_without_the_tools_their_steps_are_skipped(self):
        (self.tools / "ncu").unlink()
        (self.tools / "compute-sanitizer").unlink()
        if shutil.which("ncu", path="/usr/bin:/bin"):
            self.skipTest("this machine has them")
        done = self.check("--only", "first step,memcheck")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = self.results()
        self.assertEqual(found["first step none"], {"status": "skipped", "why": "ncu is not installed"})
        self.assertEqual({found[name]["status"] for name in found if "memcheck" in name}, {"skipped"})

    def test_without_a_gpu_nothing_is_done(self):
        (self.tools / "nvidia-smi").unlink()
        done = self.check()
        if "no NVIDIA GPU" not in done.stderr:
            self.skipTest("this machine has one")
        self.assertEqual(done.returncode, 2)
        self.assertFalse((self.path / "out").exists())

    def test_a_checkpoint_that_cannot_be_made_fails_its_steps_only(self):
        done = self.check("--shape", "none-such", "--only", "ceilings,disk and link")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = self.results()
        self.assertEqual(found["ceilings"]["status"], "passed")
        self.assertIn("the checkpoint could not be made: make-checkpoint: error", found["disk and link"]["why"])


def write_script(path, said):
    """Its calls go to the file `calls` of the working directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{path.name} $*" | sed "s/ *$//" >> calls\n{said}\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    unittest.main()
