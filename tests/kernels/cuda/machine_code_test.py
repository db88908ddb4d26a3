"""The kernels as ptxas has made them: no registers are spilled, and weights are read 16 bytes a lane.

CUDA_OBJECTS names the object files. They are read with cuobjdump and nvdisasm, which not every package of the CUDA Toolkit has."""
import collections
import os
import re
import shutil
import subprocess
import unittest

OBJECTS = os.environ["CUDA_OBJECTS"].split(":")
# Kernels with local memory that is no spill: arrays that they index (convolutions of widths that none is compiled for, and
# encoders), and what a layer norm keeps while it calls the function that divides.
WITH_ARRAYS = ("conv_kernel<0,", "encode_groups_kernel<", "column_codes_kernel(")
WITH_CALLS = r"norm_kernel<\d+, \d, true, true>"
# By file, kernels that multiply weights whose layout allows 16 bytes a lane.
WIDE = {"gemv_panels": ("gemv_panels_kernel<",), "gemv_f32": ("gemv_rows_kernel<2, 8,", "gemv_rows_kernel<1, 4,"),
        "gemv_grouped": ("grouped_mma_kernel<4, true,",), "experts_few": ("experts_up_kernel<", "experts_down_kernel<")}
FEWEST = 8  # such loads of one, at least


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def readable(names):
    names = list(names)
    shown = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout
    short = re.sub(r"\(sluice::\w+\)|sluice::|cuda::|\(anonymous namespace\)::", "", shown)
    return dict(zip(names, short.splitlines()))


@unittest.skipUnless(shutil.which("cuobjdump") and shutil.which("nvdisasm"), "no cuobjdump")
class MachineCode(unittest.TestCase):
    def test_no_registers_are_spilled(self):
        stacks = {}
        for path in OBJECTS:
            if path.endswith(".cu.o"):
                usage = output_of("cuobjdump", "--dump-resource-usage", path)
                stacks.update(re.findall(r"Function (\S+):\s+REG:\d+ STACK:(\d+)", usage))
        self.assertGreater(len(stacks), 100)
        names = readable(stacks)
        spilled = {names[k]: int(n) for k, n in stacks.items() if n != "0" and not re.search(WITH_CALLS, names[k])
                   and not any(kernel in names[k] for kernel in WITH_ARRAYS)}
        self.assertEqual(spilled, {})

    def test_weights_are_read_16_bytes_a_lane(self):
        for file, kernels in WIDE.items():
            (path,) = (path for path in OBJECTS if path.endswith(f"/{file}.cu.o"))
            loads, function = collections.Counter(), ""
            for line in output_of("cuobjdump", "-sass", path).splitlines():
                if found := re.search(r"Function : (\S+)", line):
                    function = found[1]
                    loads[function] += 0
                elif re.search(r"\bLDG\.E\S*\.128\b", line):
                    loads[function] += 1
            names = readable(loads)
            for kernel in kernels:
                with self.subTest(kernel):
                    counts = {names[k]: n for k, n in loads.items() if kernel in names[k]}
                    self.assertGreater(len(counts), 0)
                    self.assertEqual({name: n for name, n in counts.items() if n < FEWEST}, {})


if __name__ == "__main__":
    unittest.main()
