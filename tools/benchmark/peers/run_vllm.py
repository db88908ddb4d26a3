#!/usr/bin/env python3
"""Prefill and decode of vLLM's CPU build, of one sequence and of several, all in one start."""

import argparse
import json
import os
import statistics
import time


def prompts(count, tokens):
    return [{"prompt_token_ids": [(7 * token + 13 * sequence) % 30000 + 5
                                  for token in range(tokens)]} for sequence in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    # Read when vllm is imported.
    os.environ.update(OMP_NUM_THREADS=str(args.threads), VLLM_CPU_KVCACHE_SPACE="2",
                      VLLM_CPU_OMP_THREADS_BIND=f"0-{args.threads - 1}")
    from vllm import LLM, SamplingParams

    model = LLM(args.checkpoint, dtype="bfloat16", max_model_len=2 * args.prompt,
                enable_prefix_caching=False, max_num_seqs=args.sequences,
                skip_tokenizer_init=True)

    def seconds(count, length, tokens):
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True,
                                  detokenize=False)
        times = []
        for _ in range(args.repeats):
            start = time.perf_counter()
            model.generate(prompts(count, length), sampling, use_tqdm=False)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    seconds(1, 16, 2)  # whatever is done once
    decode = {count: args.steps * count
                     / (seconds(count, 8, args.steps + 1) - seconds(count, 8, 1))
              for count in (1, args.sequences)}
    print(json.dumps({"prefill": args.prompt / seconds(1, args.prompt, 1), "decode": decode[1],
                      "decode of 16 sequences": decode[args.sequences]}))


if __name__ == "__main__":
    main()
