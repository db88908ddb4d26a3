#!/usr/bin/env python3
"""Runs a checkpoint larger than memory with accelerate's disk offload, or with AirLLM."""

import argparse

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from steps import Steps


class Marks(BaseStreamer):
    """generate() hands over the prompt first, then each token as soon as it is known."""

    def __init__(self, steps):
        self.steps = steps

    def put(self, value):
        if not self.steps.marks:
            self.steps.start()
        else:
            self.steps.token(value)

    def end(self):
        pass


def open_accelerate(args):
    return transformers.AutoModelForCausalLM.from_pretrained(
        args.checkpoint, dtype=torch.bfloat16, device_map="auto",
        max_memory={"cpu": args.max_memory}, offload_folder=args.folder)


def open_airllm(args):
    from airllm import AutoModel  # prints, and needs more than the other
    return AutoModel.from_pretrained(args.checkpoint, device="cpu",
                                     layer_shards_saving_path=args.folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=("accelerate", "airllm"))
    parser.add_argument("checkpoint")
    parser.add_argument("--folder", required=True, help="where it keeps weights")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-memory", type=int, help="of accelerate, in bytes")
    parser.add_argument("--token-ids", default="",
                        help="the prompt; without it the folder is filled and nothing run")
    parser.add_argument("--tokens", type=int)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()

    model = {"accelerate": open_accelerate, "airllm": open_airllm}[args.program](args)
    if not args.token_ids:
        return
    prompt = torch.tensor([[int(word) for word in args.token_ids.split(",")]])
    steps = Steps()
    model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                   max_new_tokens=args.tokens, min_new_tokens=args.tokens, pad_token_id=0,
                   streamer=Marks(steps))
    steps.print()


if __name__ == "__main__":
    main()
