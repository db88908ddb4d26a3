#!/usr/bin/env python3
"""Rates of Hugging Face transformers with a checkpoint on the GPU, as JSON: peer.py MODEL [--prompt N] [--experts HOW].

Decode with a static cache, launched kernel by kernel, and as one CUDA graph; prompts, after one that nobody counts. Ends
with 77 where torch or transformers is missing. It shares nothing with the rest of gpu_check: another Python runs it.
"""

import argparse
import json
import sys
import time

try:
    import torch
    import transformers
except ImportError as e:
    print(f"peer.py: {e}", file=sys.stderr)
    sys.exit(77)

CONTEXT, EAGER_STEPS, GRAPH_STEPS = 16, 16, 64
PROMPTS = 3


def load(model, experts):
    """On the host first, so that accelerate is not needed."""
    how = {} if experts is None else {"experts_implementation": experts}
    return transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, **how).to("cuda").eval()


def seconds_of(work):
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def random_ids(model, count):
    return torch.randint(3, model.config.vocab_size, (1, count), generator=torch.Generator().manual_seed(0)).to("cuda")


def prefill(model, tokens):
    ids = random_ids(model, tokens)

    def once():
        model(input_ids=ids, use_cache=True, logits_to_keep=1)

    once()
    seconds = sorted(seconds_of(once) for _ in range(PROMPTS))
    return {"tokens": tokens, "tokens_per_second": tokens / seconds[PROMPTS // 2]}


def eager_decode(model):
    """Also of models that a static cache has no layers for."""
    cache = model(input_ids=random_ids(model, CONTEXT), use_cache=True).past_key_values
    token = random_ids(model, 1)

    def steps():
        for _ in range(EAGER_STEPS):
            model(input_ids=token, past_key_values=cache, use_cache=True)

    steps()
    return {"tokens_per_second": EAGER_STEPS / seconds_of(steps)}


def graph_decode(model):
    """The cache counts its tokens on the device, so that each replay is a step of its own."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=CONTEXT + 2 * EAGER_STEPS + 2 * GRAPH_STEPS)
    model(input_ids=random_ids(model, CONTEXT), past_key_values=cache, use_cache=True)
    token = random_ids(model, 1)

    def step():
        return model(input_ids=token, past_key_values=cache, use_cache=True).logits

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replays():
        for _ in range(GRAPH_STEPS):
            graph.replay()

    replays()
    return {"tokens_per_second": GRAPH_STEPS / seconds_of(replays)}


def measured(what, *arguments):
    """A rate, or why there is none: one that is not had leaves the others."""
    try:
        return what(*arguments)
    except Exception as e:  # of torch there are many kinds
        print(f"peer.py: {what.__name__}: {e}", file=sys.stderr)
        return {"fault": f"{type(e).__name__}: {e}"[:200]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=2048, metavar="N")
    parser.add_argument("--experts", help="transformers' experts_implementation, such as grouped_mm")
    o = parser.parse_args()
    if not torch.cuda.is_available():
        print("peer.py: torch sees no GPU", file=sys.stderr)
        sys.exit(77)
    transformers.utils.logging.disable_progress_bar()
    with torch.no_grad():
        model = load(o.model, o.experts)
        found = {"versions": {"transformers": transformers.__version__, "torch": torch.__version__},
                 "prompt": measured(prefill, model, o.prompt), "decode": measured(eager_decode, model),
                 "decode with a graph": measured(graph_decode, model)}
    rates = [part for part in found.values() if "tokens_per_second" in part]
    print(json.dumps(found))
    sys.exit(0 if rates else 1)


if __name__ == "__main__":
    main()
