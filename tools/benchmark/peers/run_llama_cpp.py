#!/usr/bin/env python3
"""llama.cpp through the C API that the package llama-cpp-python carries."""

import argparse
import ctypes
import sys

import llama_cpp
import numpy as np

from steps import Steps

WARNING = 3


@llama_cpp.llama_log_callback
def log(level, text, _):
    if level >= WARNING:
        sys.stderr.write(text.decode(errors="replace"))


def quantize(args):
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = args.threads
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    status = llama_cpp.llama_model_quantize(args.model.encode(), args.out.encode(),
                                            ctypes.byref(params))
    if status != 0:
        raise SystemExit(f"llama_model_quantize failed with status {status}")


def open_model(args):
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
    params.use_extra_bufts = not args.no_repack
    model = llama_cpp.llama_model_load_from_file(args.model.encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp could not load {args.model}")
    return model


def open_context(args, model):
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = max(512, len(args.token_ids) + args.tokens)
    params.n_threads = params.n_threads_batch = args.threads
    params.no_perf = True
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("llama.cpp could not make a context")
    return context


def generate(args):
    model = open_model(args)
    context = open_context(args, model)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    steps = Steps()
    tokens = args.token_ids
    steps.start()
    for _ in range(args.tokens):
        batch = (llama_cpp.llama_token * len(tokens))(*tokens)
        status = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(batch, len(tokens)))
        if status != 0:
            raise SystemExit(f"llama_decode failed with status {status}")
        logits = llama_cpp.llama_get_logits_ith(context, -1)  # waits for the computation
        tokens = [int(np.argmax(np.ctypeslib.as_array(logits, (vocabulary,))))]
        steps.token(tokens[0])
    steps.print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for function in (quantize, generate):
        verb = verbs.add_parser(function.__name__)
        verb.add_argument("model")
        verb.add_argument("--threads", type=int, required=True)
        verb.set_defaults(function=function)
        if function is quantize:
            verb.add_argument("out")
        else:
            verb.add_argument("--token-ids", required=True,
                              type=lambda text: [int(word) for word in text.split(",")])
            verb.add_argument("--tokens", type=int, required=True)
            verb.add_argument("--no-repack", action="store_true")
    args = parser.parse_args()
    llama_cpp.llama_log_set(log, None)
    llama_cpp.llama_backend_init()
    args.function(args)


if __name__ == "__main__":
    main()
