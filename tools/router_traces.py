"""Traces of a model's routers: which experts each step wants, layer by layer.

A line is a step: for each layer its experts as hexadecimal digits, rising, with a space between
layers. A line `# NAME` begins a trace. train_demo_model.py --traces writes them.
"""
import torch

NOVEL, BIBLE = "Persuasion 9", "Daniel 6"


@torch.no_grad()
def choices(model, ids):
    """For each token a list of sets, one for each layer: the experts that it has."""
    logits = model(input_ids=torch.tensor([ids]), output_router_logits=True).router_logits
    tops = [layer.topk(model.config.num_experts_per_tok).indices.tolist() for layer in logits]
    return [[set(layer[t]) for layer in tops] for t in range(len(ids))]


def together(steps):
    """One step in place of some: every layer wants what one of them wants."""
    return [set().union(*layer) for layer in zip(*steps)]


def sampled(model, ids, count):
    torch.manual_seed(1)
    out = model.generate(torch.tensor([ids]), max_new_tokens=count, min_new_tokens=count,
                         do_sample=True, temperature=0.6, pad_token_id=0)
    return out[0].tolist()


def traces(model, tokenizer, texts):
    """Yields names and steps. `texts` are documents that the model has not seen, by name."""
    ids = {name: tokenizer.encode(text).ids for name, text in texts.items()}
    yield "a novel", choices(model, ids[NOVEL][:600])
    yield "the Bible", choices(model, ids[BIBLE][:600])
    passages = [choices(model, ids[name][at:at + 75])
                for at in range(0, 300, 75) for name in (NOVEL, BIBLE)]
    yield "both in turn", [step for passage in passages for step in passage]
    yield "sampled text", choices(model, sampled(model, tokenizer.encode("Elizabeth").ids, 500))
    chats = []
    for name in sorted(texts):
        steps = choices(model, ids[name][:100])
        chats += [together(steps[:40]), *steps[40:]]
    yield "chats with prompts", chats
    four = [choices(model, ids[name][:200]) for name in sorted(texts)[::3][:4]]
    yield "four sequences", [together(steps) for steps in zip(*four)]


def write(model, tokenizer, texts, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for name, steps in traces(model, tokenizer, texts):
            print("#", name, file=file)
            for step in steps:
                print(*("".join(f"{e:x}" for e in sorted(layer)) for layer in step), file=file)
