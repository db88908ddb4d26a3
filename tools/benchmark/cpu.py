"""Who uses the CPUs while something is measured."""

import dataclasses
import os
import resource
import time


@dataclasses.dataclass(frozen=True)
class CpuClock:
    """CPU seconds so far, of the whole machine and of the programs started here."""

    wall: float
    everything: float
    ours: float

    @staticmethod
    def now():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = resource.getrusage(resource.RUSAGE_SELF)
        return CpuClock(time.monotonic(),
                        (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"),
                        children.ru_utime + children.ru_stime + own.ru_utime + own.ru_stime)

    def others_share(self):
        """Share of all cores that other programs have taken since this clock was read."""
        end = CpuClock.now()
        others = end.everything - self.everything - (end.ours - self.ours)
        return max(0.0, others / (end.wall - self.wall) / os.cpu_count())
