"""The programs that are measured side by side: their commands, and what they read."""

import dataclasses
import json
import os
import pathlib
import statistics

SCRIPTS = pathlib.Path(__file__).resolve().parent / "peers"
PROMPT = "1,2,3,4,5,6,7"
# Tokens after the first that do not count, as the page cache has to come to rest: where the limit
# is little below a mapped file, llama.cpp's first passes read a tenth of what each later one does.
SETTLING = 4


@dataclasses.dataclass(frozen=True)
class Setting:
    sluice: pathlib.Path
    python: str  # has the peers' packages
    checkpoint: pathlib.Path
    size: int  # of its weights
    work: pathlib.Path
    tokens: int  # that count
    vllm_python: str = "python3"  # vLLM wants a torch of its own

    @property
    def generated(self):
        return 1 + SETTLING + self.tokens

    @property
    def threads(self):
        return len(os.sched_getaffinity(0))

    def file(self, kind):
        return self.work / f"{self.checkpoint.resolve().name}-{kind}"

    def script(self, name, *words):
        return [self.python, str(SCRIPTS / name), *map(str, words)]


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A file or folder that a program reads; `command` makes it under the name that it is given."""

    kind: str
    share: float  # of the checkpoint's size, at most
    command: object
    source: "Artifact | None" = None


@dataclasses.dataclass(frozen=True)
class Figures:
    seconds_per_token: float
    bytes_per_token: float  # read from disk
    token_ids: list
    steps: list  # seconds and bytes of each token, the prompt's pass first, where they are known


# ---- Sluice

def sluice_command(setting, limit, tokens, *words):
    return [str(setting.sluice), "run", str(setting.checkpoint), "--token-ids", PROMPT, "-n",
            str(tokens), "--ignore-eos", "--speculation", "none", "--memory", str(limit),
            "--json", "--quiet", *map(str, words)]


FP8 = ("--quantization", "fp8", "--quantize-modules", "all", "--spill-dir")
# Filled under the limit of its comparisons; the weights that stay in memory are in it, too.
SPILL = Artifact("spill", 0.55, lambda setting, path: sluice_command(
    setting, setting.size // 2, 1, *FP8, path))


@dataclasses.dataclass(frozen=True)
class Sluice:
    artifact: "Artifact | None"
    packages = ()

    def command(self, setting, limit):
        words = (*FP8, setting.file("spill")) if self.artifact else ()
        return sluice_command(setting, limit, setting.generated, *words, "--report",
                              setting.file("report.json"))

    def figures(self, setting, printed):
        ran = json.loads(printed)
        report = json.loads(setting.file("report.json").read_text(encoding="utf-8"))
        if self.artifact and report["spill"]["outcome"] != "reused":
            raise ValueError(f"the spill cache was not warm: {report['spill']['outcome']}")
        steps = len(ran["token_ids"]) - 1
        streamed = report["stream"]["bytes_read"] if report["stream"] else 0
        # All tokens after the first count: nothing has to settle. The prompt's pass reads what each
        # later one does.
        return Figures(ran["timings"]["decode_seconds"] / steps, streamed / (steps + 1),
                       ran["token_ids"], [])


# ---- the peers, which print what peers/steps.py says

class Peer:
    def figures(self, setting, printed):
        ran = json.loads(printed.splitlines()[-1])
        counted = slice(1 + SETTLING, None)
        return Figures(statistics.mean(ran["step_seconds"][counted]),
                       statistics.mean(ran["step_bytes"][counted]), ran["token_ids"],
                       list(zip(ran["step_seconds"], ran["step_bytes"])))


def generation(setting):
    return ("--threads", setting.threads, "--token-ids", PROMPT, "--tokens",
            setting.generated)


BF16_GGUF = Artifact("bf16.gguf", 1.01, lambda setting, path: setting.script(
    "make_gguf.py", setting.checkpoint, path))
Q8_0_GGUF = Artifact("q8_0.gguf", 0.54, lambda setting, path: setting.script(
    "run_llama_cpp.py", "quantize", setting.file("bf16.gguf"), path, "--threads", setting.threads),
    source=BF16_GGUF)


@dataclasses.dataclass(frozen=True)
class LlamaCpp(Peer):
    artifact: Artifact
    words: tuple
    packages = ("llama-cpp-python", "gguf", "numpy")

    def command(self, setting, _):
        return setting.script("run_llama_cpp.py", "generate", setting.file(self.artifact.kind),
                              *generation(setting), *self.words)


def hugging_face(setting, program, folder, *words):
    return setting.script("run_hugging_face.py", program, setting.checkpoint, "--folder", folder,
                          *words)


@dataclasses.dataclass(frozen=True)
class Accelerate(Peer):
    artifact = None
    packages = ("torch", "transformers", "accelerate")

    def command(self, setting, limit):
        return hugging_face(setting, "accelerate", setting.file("accelerate"), "--max-memory",
                            limit // 2, *generation(setting))


AIRLLM_SHARDS = Artifact("airllm", 1.01, lambda setting, path: hugging_face(
    setting, "airllm", path, "--threads", setting.threads))


@dataclasses.dataclass(frozen=True)
class AirLlm(Peer):
    artifact = AIRLLM_SHARDS
    packages = ("torch", "transformers", "airllm")

    def command(self, setting, _):
        return hugging_face(setting, "airllm", setting.file("airllm"), *generation(setting))


# By default llama.cpp keeps a second, repacked form of the weights that its kernels like better.
PROGRAMS = {
    "sluice-bf16": Sluice(None),
    "sluice-fp8": Sluice(SPILL),
    "llama.cpp-bf16": LlamaCpp(BF16_GGUF, ("--no-repack",)),
    "llama.cpp-bf16-default": LlamaCpp(BF16_GGUF, ()),
    "llama.cpp-q8_0": LlamaCpp(Q8_0_GGUF, ("--no-repack",)),
    "llama.cpp-q8_0-default": LlamaCpp(Q8_0_GGUF, ()),
    "accelerate": Accelerate(),
    "airllm": AirLlm(),
}
