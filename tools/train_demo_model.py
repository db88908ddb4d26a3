#!/usr/bin/env python3
"""Trains the demo model: a small Llama-architecture model with its own tokenizer.

--experts trains one with experts instead: Qwen3-MoE's architecture, the same text and tokenizer.
--traces FILE then writes which experts its routers choose.

Needs torch, transformers, tokenizers and safetensors, and the texts of the Debian
packages that demo_corpus.py names: install them, or let --fetch download and unpack
them into a temporary folder (it installs nothing).

    python tools/train_demo_model.py --fetch --minutes 40 --work build/demo --out tools/demo-model
    python tools/train_demo_model.py --experts --fetch --threads 1 --minutes 30 --work build/moe \
        --out tools/demo-moe-model --traces tests/data/experts/traces.txt

trains for 40 minutes of wall time (the learning rate follows the clock; --steps makes
it follow the step count instead) and leaves a checkpoint in the work folder every few
minutes; --resume continues from it, with the optimizer starting afresh.  Then it writes
the finished folder: configuration, tokenizer, BF16 weights in three shards, held-out
text, its perplexity and a README.  --export-only writes the folder from the last
checkpoint.  Where other work loads the machine, one thread may be faster than two.
"""
import argparse
import json
import math
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM

import demo_corpus
import router_traces

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"  # token ids 0 and 1
# A text model: what the user writes begins a paragraph, and the answer continues it.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if not loop.first and message.role != 'assistant' %}{{ '\\n\\n' }}{% endif %}"
    "{{ message.content }}{% endfor %}")
SHARDS = 3
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 704,
    "max_position_embeddings": 1024,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 8,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 4096,
}
QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "decoder_sparse_step": 1,
    "eos_token_id": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 1024,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "router_aux_loss_coef": 0.001,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 4096,
}
# A small share of the loss: no expert dies, and routers still prefer some.
BALANCE = QWEN3_MOE["router_aux_loss_coef"]
DEFINITION = (
    "validation.txt is tokenized as a whole with one <|begin_of_text|> in front and cut into "
    "windows of 1024 consecutive tokens without overlap (the last may be shorter); in each window "
    "every token but the first is predicted from those before it in the window; perplexity = "
    "exp(mean negative log likelihood over all predicted tokens). Computed in float32 from the "
    "BF16 weights.")

README = """\
# Demo model

A small language model of {family}'s architecture with its own tokenizer, for trying Sluice out and for
its tests. It writes sentences in the manner of Jane Austen and of the King James Version of the
Bible, according to how the prompt begins. It knows nothing and follows no instructions.

* {parameters:,} parameters, BF16, {megabytes:.1f} MB in three shards (a layer straddles two of them)
* {num_hidden_layers} layers, hidden size {hidden_size}, {num_attention_heads} heads of {head_dim} with {num_key_value_heads} key/value heads, {mlp}, tied
  embeddings, RoPE with theta 10000, at most 1024 positions
* byte-level BPE tokenizer of 4096 tokens, trained on the same text; `<|begin_of_text|>` (id 0) is
  put in front of every text, `<|end_of_text|>` (id 1) ends one

It reads best sampled at a temperature of about 0.6; decoded greedily it soon repeats itself, as
models of this size do, and above 0.8 it invents words. Prompts it continues well: `Elizabeth`,
`Mr. Darcy`, `"My dear Miss Woodhouse,`, `Anne had`, `And it came to pass`,
`And the LORD said unto Moses,`.

Its chat template puts the messages behind each other: what the user writes begins a paragraph, and
the answer continues it.

## Text

Chapters of works whose copyright has expired, taken from Debian packages and cleaned of headings
and verse numbers; a chapter is a document.

| text | Debian package | licence |
| --- | --- | --- |
| the King James Version of the Bible (1611) | bible-kjv-text | copyright expired, as the package states; its own files may be used and copied without restriction. The program that reads them (bible-kjv, GPL-2+) is used for that only |
| *Emma*, *Mansfield Park*, *Northanger Abbey*, *Persuasion*, *Pride and Prejudice*, *Sense and Sensibility* by Jane Austen (1811-1818) | r-cran-janeaustenr | the novels are in the public domain (the author died in 1817); the package around them is MIT, copyright 2016-2017 Julia Silge. Only the text of the novels is used |

`validation.txt` ({validation_bytes:,} bytes) is whole chapters that neither the model nor the
tokenizer was trained on: {chapters}.

## Training

By `tools/train_demo_model.py{option}` on a CPU: {seen:.1f} million tokens, {epochs:.1f} passes over
{text_tokens:,}; {optimizer}, peak learning rate {lr:g} with warm-up and a cosine decay, weight decay
{weight_decay:g}, {batch} tokens a step, sequences of 512 and in the last 30% of 1024 tokens, BF16
autocast over float32 weights, rounded to BF16 at the end. The schedule follows the clock, so that
another run gives a similar model and not the same one.{balance}

## Perplexity

**{perplexity:.4f}** on `validation.txt`, over {count} predicted tokens (also in `expected.json`).
{definition}
"""


FAMILIES = {
    "llama": {"family": "Llama", "mlp": "intermediate size 704", "option": "",
              "muon": "Muon (embedding and norms: AdamW)", "balance": ""},
    "qwen3_moe": {
        "family": "Qwen3-MoE", "mlp": "16 experts of intermediate size 64, of which a token has 2",
        "option": " --experts", "muon": "Muon (embedding, norms, routers and experts: AdamW)",
        "balance": (" The routers' balance is\na thousandth of the loss, so that they "
                    "prefer some experts to others, as those of large models do.")},
}


def new_model(config):
    """A model with random weights in float32; experts are computed one by one."""
    config = AutoConfig.for_model(**{**config, "torch_dtype": "float32"})
    if getattr(config, "num_experts", 0):
        config.output_router_logits = True
        config._experts_implementation = "eager"
    return AutoModelForCausalLM.from_config(config).float()


def train_tokenizer(texts):
    """Byte-level BPE in the manner of GPT-2, which puts BOS in front of every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=LLAMA["vocab_size"], special_tokens=[BOS, EOS], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1",
                                      special_tokens=[(BOS, 0)])])
    return tokenizer


class Batches:
    """Token batches without end: the documents in a new order for every epoch, in one stream,
    which is cut into windows; the windows are shuffled, so that a batch mixes documents."""

    def __init__(self, documents, seed):
        self.documents = documents  # lists of ids, each from BOS to EOS
        self.random = random.Random(seed)
        self.length, self.windows = 0, []

    def next(self, rows, length):
        if length != self.length or len(self.windows) < rows:
            self.random.shuffle(self.documents)
            stream = [i for document in self.documents for i in document]
            starts = range(self.random.randrange(length), len(stream) - length, length)
            self.length, self.windows = length, [stream[i:i + length + 1] for i in starts]
            self.random.shuffle(self.windows)
        batch = torch.tensor([self.windows.pop() for _ in range(rows)])
        return batch[:, :-1], batch[:, 1:]


@torch.no_grad()
def perplexity(model, ids, window, autocast=False):
    """Perplexity as DEFINITION says, and the number of tokens predicted."""
    total, count = 0.0, 0
    for start in range(0, len(ids), window):
        part = torch.tensor(ids[start:start + window])[None]
        if part.shape[1] < 2:
            continue
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=part[:, :-1]).logits[0].float()
        total += F.cross_entropy(logits, part[0, 1:], reduction="sum").item()
        count += part.shape[1] - 1
    return math.exp(total / count), count


def make_optimizers(model, args):
    """Muon for the matrices of the layers; AdamW for the embedding, the norms, routers and experts."""
    def is_matrix(name, p):
        return p.ndim == 2 and "embed" not in name and ".mlp.gate." not in name and ".experts." not in name
    matrices = [p for n, p in model.named_parameters() if is_matrix(n, p)]
    others = [p for n, p in model.named_parameters() if not is_matrix(n, p)]
    if args.optimizer == "adamw":
        groups = [{"params": matrices, "weight_decay": args.weight_decay},
                  {"params": others, "weight_decay": 0.0}]
        return [torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))]
    return [torch.optim.Muon(matrices, lr=args.lr, weight_decay=args.weight_decay,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]


def train(args, tokenizer, documents, validation_ids, checkpoint):
    torch.manual_seed(args.seed)
    model = new_model(args.config).train()
    seen, progress = 0, 0.0
    if args.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        seen, progress = saved["seen"], saved["progress"]
    # The rows of an expert are others in each step: nothing to compile.
    compiled = model if args.experts else torch.compile(model, dynamic=False)
    optimizers = make_optimizers(model, args)
    encoded = tokenizer.encode_batch([text for _, text in documents])
    batches = Batches([e.ids + [args.config["eos_token_id"]] for e in encoded], args.seed + seen)
    size = sum(len(d) for d in batches.documents)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {size} tokens of text")

    def save():
        torch.save({"model": model.state_dict(), "seen": seen, "size": size,
                    "progress": progress}, checkpoint)

    start = last_save = shown = time.time()
    seen_before, progress_before = seen, progress
    step, recent = 0, []
    while progress < 1:
        warm = min(1.0, (step + 1) / args.warmup)
        rate = args.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        # Mostly short sequences, then full length, so that all positions are trained.
        length = 512 if progress < 0.7 else args.config["max_position_embeddings"]
        inputs, targets = batches.next(args.batch // length, length)
        with torch.autocast("cpu", torch.bfloat16):
            out = compiled(input_ids=inputs, use_cache=False)
        loss = F.cross_entropy(out.logits.float().view(-1, args.config["vocab_size"]), targets.reshape(-1))
        if args.experts:
            loss = loss + BALANCE * out.aux_loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        model.zero_grad(set_to_none=True)
        step, seen = step + 1, seen + inputs.numel()
        recent.append(loss.item())
        elapsed = time.time() - start
        progress = progress_before + (
            step / args.steps if args.steps else elapsed / (60 * args.minutes))
        if time.time() - shown > 20:
            print(f"{progress:6.1%} step {step} epoch {seen / size:.2f} loss "
                  f"{sum(recent) / len(recent):.3f} {(seen - seen_before) / elapsed:.0f} tokens/s",
                  flush=True)
            recent, shown = [], time.time()
        if time.time() - last_save > 60 * args.save_every:
            save()
            print("validation perplexity %.2f (%d tokens)"
                  % perplexity(model, validation_ids, 1024, True), flush=True)
            last_save = time.time()
    save()


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def one_tensor_an_expert(state):
    """Names and tensors as checkpoints have them: experts are apart, gate and up too."""
    for name, tensor in state.items():
        if ".experts." not in name or tensor.ndim != 3:
            yield name, tensor
            continue
        prefix, kind = name.rsplit(".", 1)
        for e, matrix in enumerate(tensor):
            if kind == "gate_up_proj":
                for part, half in zip(("gate_proj", "up_proj"), matrix.chunk(2)):
                    yield f"{prefix}.{e}.{part}.weight", half
            else:
                yield f"{prefix}.{e}.{kind}.weight", matrix


def write_shards(state, out):
    """BF16 shards of about equal size, cut between tensors and not between layers."""
    state = {n: t.to(torch.bfloat16).contiguous() for n, t in one_tensor_an_expert(state)
             if n != "lm_head.weight"}
    total = sum(t.nbytes for t in state.values())
    shards, at = [{} for _ in range(SHARDS)], 0
    for name, tensor in state.items():
        shards[min(SHARDS - 1, at * SHARDS // total)][name] = tensor
        at += tensor.nbytes
    names = [f"model-{i + 1:05}-of-{SHARDS:05}.safetensors" for i in range(SHARDS)]
    for name, shard in zip(names, shards):
        save_file(shard, out / name, metadata={"format": "pt"})
        (out / name).chmod(0o644)
    where = {tensor: name for name, shard in zip(names, shards) for tensor in shard}
    layers = {".".join(t.split(".")[:3]) for t in where if ".layers." in t}
    if not any(len({f for t, f in where.items() if t.startswith(x + ".")}) > 1 for x in layers):
        raise SystemExit("no layer straddles two shards")
    write_json(out / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})
    return names


def export(args, tokenizer, validation, checkpoint):
    """Writes the folder and measures it by what was written."""
    out, saved = args.out, torch.load(checkpoint)
    out.mkdir(parents=True, exist_ok=True)
    config = args.config
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1})
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"bos_token": BOS, "eos_token": EOS}
    write_json(out / "special_tokens_map.json", special)
    write_json(out / "tokenizer_config.json", {
        "added_tokens_decoder": {
            str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": True} for i, token in enumerate((BOS, EOS))},
        **special, "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast"})
    (out / "validation.txt").write_text(validation)
    names = write_shards(saved["model"], out)

    model, found = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, output_loading_info=True)
    missing = set(found["missing_keys"]) - {"lm_head.weight"}
    if missing or found["unexpected_keys"]:
        raise SystemExit(f"not in the shards: {missing}; not in the model: {found['unexpected_keys']}")
    model.eval()
    ids = tokenizer.encode(validation).ids
    value, count = perplexity(model, ids, config["max_position_embeddings"])
    write_json(out / "expected.json",
               {"perplexity": round(value, 4), "tokens": count, "definition": DEFINITION})
    (out / "README.md").write_text(README.format(
        **config, **FAMILIES[config["model_type"]],
        parameters=sum(p.numel() for p in model.parameters()),
        megabytes=sum((out / name).stat().st_size for name in names) / 1e6,
        text_tokens=saved["size"], seen=saved["seen"] / 1e6, epochs=saved["seen"] / saved["size"],
        optimizer={"adamw": "AdamW", "muon": FAMILIES[config["model_type"]]["muon"]}[args.optimizer],
        lr=args.lr, weight_decay=args.weight_decay, batch=args.batch, perplexity=value, count=count,
        definition=DEFINITION, validation_bytes=len(validation.encode()),
        chapters=", ".join(demo_corpus.VALIDATION)))
    print(f"{out}: validation perplexity {value:.4f} over {count} tokens")
    if args.traces:
        router_traces.write(model, tokenizer, args.held_out, args.traces)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="/", help="where the text packages are unpacked")
    parser.add_argument("--fetch", action="store_true", help="download them (apt-get) instead")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for checkpoints")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the model")
    parser.add_argument("--experts", action="store_true", help="train the model with experts")
    parser.add_argument("--traces", type=pathlib.Path, help="file for its routers' choices")
    parser.add_argument("--minutes", type=float, default=40, help="wall time to train (default 40)")
    parser.add_argument("--steps", type=int, help="steps to train, whatever time they take")
    parser.add_argument("--export-only", action="store_true", help="write the last checkpoint")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--save-every", type=float, default=4, help="minutes between checkpoints")
    parser.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--warmup", type=int, default=60, help="steps of warm-up")
    parser.add_argument("--batch", type=int, default=4096, help="tokens in a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    if args.traces and not args.experts:
        parser.error("--traces needs --experts")
    args.config = QWEN3_MOE if args.experts else LLAMA
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    checkpoint = args.work / "checkpoint.pt"
    documents, held_out = demo_corpus.load(args.root, args.fetch)
    args.held_out = dict(held_out)
    validation = "\n\n".join(text for _, text in held_out) + "\n"
    tokenizer = train_tokenizer(text for _, text in documents)
    if not args.export_only:
        train(args, tokenizer, documents, tokenizer.encode(validation).ids, checkpoint)
    export(args, tokenizer, validation, checkpoint)


if __name__ == "__main__":
    main()
