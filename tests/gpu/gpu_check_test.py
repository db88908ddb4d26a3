"""tools/gpu-check from its archive, in an empty directory and environment, with shell scripts in the places of the GPU's
tools and of the programs. Each writes down that it was called."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["SLUICE_SOURCE"])
HANGS = 600  # seconds: whoever takes longer has hung, however busy the machine is
sys.path.insert(0, str(SOURCE / "tools"))
sys.dont_write_bytecode = True
from gpu_check import pack, steps  # noqa: E402
from gpu_check.step import MAIN  # noqa: E402

NVIDIA_SMI = """case "$1" in
  *compute_cap*) echo "NVIDIA Test, 9.0, 81559 MiB, 580.1" ;;
  -L) echo "GPU 0: NVIDIA Test"; echo "GPU 1: NVIDIA Test" ;;
  *) echo "80000 MiB, 345 MHz" ;;
esac"""
OP_TESTS = ("Attention.Adds", "Attention.Copies", "Experts.A", "States.A", "Elementwise.A", "StoreKv.A",
            "Grouped.A", "Encode.A", "Linear.A", "MultiplyHeads.A", "ChoosePositions.A")
MODEL_TESTS = ("Models/Gpu.Bfloat16WithinItsTolerance/llama_tied", "Models/Gpu.Streams/llama_tied",
               "Models/Gpu.Streams/llama_tied_2", "GpuMemory.Gives")
SANITIZER = """shift 4; "$@" && echo '========= ERROR SUMMARY: 0 errors'"""
NCU = """echo '==PROF== noise'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","void sluice::cuda::gemv<int>(float)","Duration","us","1,004"'
echo '"1","void sluice::cuda::gemv<int>(float)","Duration","us","1,006"'"""
PYTHON = """case "$1" in *peer.py) echo '{"decode": {"tokens_per_second": 5.5}}' ;; esac"""
CUDA_BENCH = """echo '{"copy": {"rate": 1.5}}'"""
SLUICE = """while [ $# -gt 0 ]; do
  if [ "$1" = --report ]; then echo '{"memory": {"predicted_peak": 30, "measured_peak": 40, "device": {"predicted_peak": 10, "ledger_peak": 8}}}' > "$2"; fi
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
        shutil.copy(SOURCE / "tools/gpu-check", root / "tools/gpu-check")
        # Of the shapes beside the main one only the names are large.
        maker = (SOURCE / "tools/make-checkpoint").read_text()
        small = f'SHAPES |= dict.fromkeys({steps.SHAPES}, SHAPES["tiny"])\nDEMO_MODEL ='
        (root / "tools/make-checkpoint").write_text(maker.replace("DEMO_MODEL =", small, 1))
        shutil.copytree(SOURCE / "tools/gpu_check", root / "tools/gpu_check")
        shutil.copytree(SOURCE / "tools/demo-model", root / "tools/demo-model", ignore=shutil.ignore_patterns("*.safetensors"))
        (root / "tests/data/models").mkdir()
        said = {"sluice": SLUICE, "gpu_op_test": gtest(OP_TESTS), "gpu_test": gtest(MODEL_TESTS), "cuda_bench": CUDA_BENCH}
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
        tools = {"nvidia-smi": NVIDIA_SMI, "compute-sanitizer": SANITIZER, "ncu": NCU, "python3": PYTHON}
        for name, said in tools.items():
            write_script(self.tools / name, said)

    def command(self, *options):
        return [sys.executable, "-I", "sluice-gpu-check/tools/gpu-check", "--out", "out", "--scratch", "scratch", *options]

    def environment(self):
        return {"PATH": f"{self.tools}:/usr/bin:/bin"}

    def check(self, *options):
        return subprocess.run(self.command(*options), cwd=self.path, env=self.environment(), capture_output=True, text=True,
                              timeout=HANGS, check=False)

    def program(self, name, said):
        write_script(self.path / "sluice-gpu-check/bin" / name, said)

    def results(self):
        return json.loads((self.path / "out/results.json").read_text())["steps"]

    def calls(self):
        log = self.path / "calls"
        said = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return said

    def programs_called(self):
        steps_call = {"sluice", "gpu_op_test", "gpu_test", "cuda_bench", "ncu", "compute-sanitizer"}
        return {call.split(" ")[0] for call in self.calls()} & steps_call

    def test_all_steps_with_a_checkpoint_made_meanwhile(self):
        done = self.check("--shape", "tiny")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = self.results()
        self.assertEqual(list(found), ["machine"] + [step.name for step in steps.all_steps()])
        self.assertEqual({result["status"] for result in found.values()}, {"passed"})
        self.assertEqual(found["gpu_op_test"]["found"], {"processes": 10, "tests": 11, "skipped": 0, "failed": []})
        self.assertEqual(found["gpu_test"]["found"], {"processes": 3, "tests": 4, "skipped": 0, "failed": []})
        self.assertEqual(found["ceilings"]["found"]["copy"]["rate"], 1.5)
        self.assertEqual(found["first step none"]["found"], {"gemv": {"runs": 2, "Duration [us]": 1005.0}})
        self.assertEqual(found["memory fp8"]["found"]["predicted_over_measured"], 1.25)
        self.assertEqual(found["memcheck attention"]["found"]["summary"], "0 errors")
        self.assertEqual(found["memcheck attention"]["found"]["tests"], 2)
        self.assertEqual(found["memcheck a model"]["found"]["tests"], 1)
        self.assertEqual(found["transformers experts"]["found"]["decode"]["tokens_per_second"], 5.5)
        for shape in ("tiny", *steps.SHAPES):
            self.assertTrue((self.path / f"scratch/{shape}/model.safetensors.index.json").exists(), shape)
        self.assertLessEqual(len(list((self.path / "out").iterdir())), 8)
        self.assertIn("tokens_per_second 123.4", (self.path / "out/summary.md").read_text())
        calls = self.calls()
        self.assertEqual(sum("--gtest_filter=*/llama_tied" == call.removeprefix("gpu_test ") for call in calls), 1)
        self.assertTrue(any(f"scratch/{steps.EXPERTS} --device cpu" in call for call in calls))
        self.assertEqual(self.check("--shape", "tiny").returncode, 0)
        self.assertEqual(self.programs_called(), set())
        again = self.check("--only", "decode fp8", "--again")  # which is a part of three names
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(sum(call.startswith("sluice") for call in self.calls()), 3)

    def test_a_suite_that_hangs_or_crashes_costs_no_other(self):
        self.program("gpu_op_test", gtest(OP_TESTS, {"StoreKv.A": "sleep 600 & wait", "Attention.Adds": "kill -11 $$"}))
        done = self.check("--only", "tests", "--step-s", "5")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = self.results()
        self.assertEqual(found["gpu_op_test"]["status"], "timed out")
        self.assertIn("Attention.* ended with -11", found["gpu_op_test"]["why"])
        ended = found["gpu_op_test"]["found"]
        self.assertEqual((ended["processes"], ended["tests"], ended["failed"]), (10, 10, []))
        self.assertEqual(sorted(ended["did not end"]), ["Attention.Adds", "StoreKv.A"])
        self.assertEqual(found["gpu_test"]["status"], "passed")

    def test_what_measures_memory_runs_when_nothing_else_does(self):
        now = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; [ -e alone ] && exit 3; done; echo"
        self.program("gpu_test", gtest(MODEL_TESTS, {
            "Models/Gpu.Streams/llama_tied": f"{now} '[       OK ] Models/Gpu.Streams/llama_tied (3 ms)'",
            "GpuMemory.Gives": "touch alone; sleep 0.3; rm alone; echo '[       OK ] GpuMemory.Gives (3 ms)'"}))
        done = self.check("--only", "gpu_test")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_fails_is_told_with_its_reason(self):
        self.program("gpu_op_test", gtest(OP_TESTS, {"StoreKv.A": "echo '[  FAILED  ] StoreKv.A (1 ms)'; exit 1"}))
        skips = "Models/Gpu.Streams/llama_tied_2"
        self.program("gpu_test", gtest(MODEL_TESTS, {skips: f"echo '[  SKIPPED ] {skips} (1 ms)'"}))
        self.program("sluice", "echo 'sluice: no room' >&2; exit 4")
        done = self.check("--only", "tests,disk and link")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = self.results()
        self.assertEqual(found["gpu_op_test"]["found"]["failed"], ["StoreKv.A"])
        self.assertIn("StoreKv.* ended with 1", found["gpu_op_test"]["why"])
        self.assertEqual((found["gpu_test"]["status"], found["gpu_test"]["found"]["skipped"]), ("failed", 1))
        self.assertEqual(found["disk and link"]["why"], "ended with 4; last line: sluice: no room")

    def test_a_program_without_tests_fails(self):
        self.program("gpu_op_test", "echo '[  SKIPPED ] all tests'")
        self.program("gpu_test", gtest(MODEL_TESTS[:3]))  # without those that are alone
        done = self.check("--only", "tests")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = self.results()
        self.assertEqual((found["gpu_op_test"]["status"], found["gpu_op_test"]["why"]), ("failed", "there are no tests"))
        self.assertEqual(found["gpu_test"]["found"]["without tests"], ["GpuMemory.*"])
        self.assertEqual(found["gpu_test"]["status"], "failed")

    def test_a_request_to_end_ends_all_processes(self):
        for name, tests in (("gpu_op_test", OP_TESTS), ("gpu_test", MODEL_TESTS)):
            self.program(name, gtest(tests, {test: "touch began; sleep 600; touch too-late" for test in tests}))
        with subprocess.Popen(self.command("--only", "tests"), cwd=self.path, env=self.environment(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            until = time.monotonic() + HANGS
            while not (self.path / "began").exists() and time.monotonic() < until:
                time.sleep(0.02)
            run.terminate()
            self.assertEqual(run.wait(HANGS), 128 + 15)
        left = [path for path in pathlib.Path("/proc").glob("[0-9]*/cwd") if is_link_to(path, self.path)]
        self.assertEqual(left, [])

    def test_a_budget_ends_between_steps_and_the_next_call_goes_on(self):
        done = self.check("--only", "tests", "--budget-s", "60")  # less than half of the second step's time
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(list(self.results()), ["machine", "gpu_op_test"])
        self.calls()
        done = self.check("--only", "tests", "--budget-s", "60")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.programs_called(), {"gpu_test", "sluice"})

    def test_without_the_tools_their_steps_are_skipped(self):
        (self.tools / "ncu").unlink()
        (self.tools / "compute-sanitizer").unlink()
        if shutil.which("ncu", path="/usr/bin:/bin"):
            self.skipTest("this machine has them")
        write_script(self.tools / "python3", f"exec {sys.executable} -I -S \"$@\"")  # which sees no packages
        done = self.check("--only", "first step,memcheck,peers")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = self.results()
        self.assertEqual(found["first step none"], {"status": "skipped", "why": "ncu is not installed"})
        self.assertEqual({found[name]["status"] for name in found if "memcheck" in name}, {"skipped"})
        self.assertEqual(found["transformers"], {"status": "skipped", "why": "peer.py: No module named 'torch'"})

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


    def test_the_shapes_of_figures_are_those_that_can_be_made(self):
        said = subprocess.run([sys.executable, "-I", SOURCE / "tools/make-checkpoint", "--help"], capture_output=True, text=True,
                              check=True).stdout
        for shape in steps.SHAPES:
            self.assertRegex(said, rf"[{{,]{shape}[,}}]")

    def test_the_number_of_threads_goes_up_to_all(self):
        names = [step.name for step in steps.all_steps()]
        cpus = len(os.sched_getaffinity(0))
        self.assertIn(f"CPU decode {cpus} threads", names)
        self.assertIn("CPU decode 1 threads", names)
        self.assertEqual(len(names), len(set(names)))

    def test_without_other_shapes_no_step_needs_one(self):
        self.assertEqual({s.model for s in steps.all_steps(shapes=False)}, {None, MAIN})


def gtest(tests, instead={}):
    """A program with these tests, of which a filter runs those that it names. instead: of a test's end, what it does."""
    listing, suite = ["Running main()"], None
    for test in tests:
        if test.split(".")[0] != suite:
            suite = test.split(".")[0]
            listing.append(suite + ".")
        listing.append(f"  {test.split('.')[1]}" + ("  # GetParam() = \"x\"" if "/" in test else ""))
    lines = ["if [ \"$1\" = --gtest_list_tests ]; then cat <<'END'", *listing, "END", "exit; fi", 'filter="${1#--gtest_filter=}"',
             'runs() { case "$1" in ${filter%%-*}) echo "[ RUN      ] $1" ;; *) return 1 ;; esac; }']
    for test in tests:
        end = instead.get(test, f"echo '[       OK ] {test}, where GetParam() = \"x\" (3 ms)'")
        lines.append(f"if runs {test}; then {end}; fi")
    return "\n".join(lines)


def is_link_to(link, path):
    try:
        return link.resolve() == path
    except OSError:  # of another user, or gone
        return False


def write_script(path, said):
    """Its calls go to the file `calls` of the working directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{path.name} $*" | sed "s/ *$//" >> calls\n{said}\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    unittest.main()
