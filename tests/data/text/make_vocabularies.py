#!/usr/bin/env python3
"""Makes the vocabularies in other formats than tokenizer.json, and what their own libraries say of texts:

  sentencepiece_bpe, sentencepiece_unigram   tokenizer.model, rows.jsonl
  tiktoken, tekken                           qwen.tiktoken, tekken.json, rows.jsonl
  normalizers.json                           a precompiled charsmap, and what tokenizers makes of texts with it
  bpe_affixes.json                           tokenizers whose symbols have prefixes and suffixes, with ids

Needs sentencepiece (0.2.1), tiktoken (0.12.0) and tokenizers (0.23.3): make_vocabularies.py [OUT]
"""
import base64
import json
import pathlib
import random
import sys

import sentencepiece
import tiktoken
import tokenizers
from sentencepiece import sentencepiece_model_pb2

HERE = pathlib.Path(__file__).resolve().parent
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
CORPUS = (HERE.parents[2] / "tools/demo-model/validation.txt").read_text()
TEXTS = [json.loads(line)["text"] for line in (HERE / "llama2_spm/strings.jsonl").open()]
ODD = ["", " ", "  ", " a", "a ", "  a  b  ", "\n", " \n ", "\u2581", "\u2581a", "a\u2581b", "a\tb", "<s>", "a</s> b", "<unk>",
       "<0x41>", "<0x41><0x42>", "aaaaaaaaaaaa", "tatatatata", "\u00e9\u0301", "e\u0301", "\ufb01ne", "\uff21\uff22", "x\u2126\u0301y",
       "\u304b\u3099\u304b", "\U0001f600\u200d\U0001f600", "\u0600a", "\r\n\r", "\u0915\u094d\u0937", "\u1112\u1161\u11ab",
       "call <tool> now", "<tool>", " <tool>  <tool>x", "<too", "1234567", "\u00a9\u200d", "a\u0308b", "\u00bd", "\u2122\u0301", "1" * 300, "word" * 60,
       "the " * 90, "the" * 90]
RULES = {"\ufb01": "fi", "\uff21": "A", "\uff22": "B", "\u2126": "\u03a9", "e\u0301": "\u00e9", "\u304b\u3099": "\u304c",
         "\t": " ", "\u00bd": "1\u20442", "\u200b": "", "\u2122": "TM", "\u00a9": "(c)", "\u0600": "", "\u1112\u1161\u11ab": "\ud55c",
         "a\u0308": "\u00e4", "\r": " "}


def texts(seed):
    rng = random.Random(seed)
    words = CORPUS.split()
    mixed = [" ".join(rng.choices(words, k=rng.randrange(1, 12))) for _ in range(20)]
    letters = ["".join(rng.choices("ab e\u0301\u00e9\ufb01\u304b\u3099\t \u2581<>", k=rng.randrange(1, 20))) for _ in range(60)]
    return ODD + TEXTS + mixed + letters


def write_rows(folder, rows):
    with (OUT / folder / "rows.jsonl").open("w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def train_sentencepiece(folder, **options):
    (OUT / folder).mkdir(parents=True, exist_ok=True)
    model = OUT / folder / "model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines() + TEXTS), model_prefix=str(model), minloglevel=2,
        character_coverage=0.99, **options)
    model.with_suffix(".vocab").unlink()
    model.with_suffix(".model").rename(OUT / folder / "tokenizer.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(OUT / folder / "tokenizer.model"))
    rows = []
    for text in texts(1):
        ids = processor.encode(text)
        rows.append({"text": text, "ids": ids, "decoded": processor.decode(ids)})
    write_rows(folder, rows)


def rules_file():
    path = OUT / "rules.tsv"
    path.write_text("".join(" ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in value) + "\n"
                            for key, value in RULES.items()))
    return path


def ranks():
    """Tokens of a tokenizer.json as tiktoken has them: bytes, then what the merges make, in order."""
    model = json.loads((HERE / "qwen2_bpe/tokenizer.json").read_text())["model"]
    alphabet = {c: b for b, c in byte_characters().items()}
    found = {bytes([b]): b for b in range(256)}
    for merge in model["merges"]:
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        found.setdefault(bytes(alphabet[c] for c in left + right), len(found))
    return found


def byte_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


ONE_DIGIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_tiktoken():
    import unicodedata
    (OUT / "tiktoken").mkdir(parents=True, exist_ok=True)
    tokens = ranks()
    with (OUT / "tiktoken/qwen.tiktoken").open("w") as file:
        for token, rank in tokens.items():
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
    encoding = tiktoken.Encoding("test", pat_str=ONE_DIGIT, mergeable_ranks=tokens,
                                 special_tokens={name: len(tokens) + i for i, name in enumerate(special)})
    rows = []
    for text in texts(2) + ["<|im_start|>user\nHello<|im_end|>\n", "a<|extra_204|>b"]:
        ids = encoding.encode(unicodedata.normalize("NFC", text), allowed_special="all")
        rows.append({"text": text, "ids": ids, "decoded": encoding.decode(ids)})
    write_rows("tiktoken", rows)


def make_tekken():
    (OUT / "tekken").mkdir(parents=True, exist_ok=True)
    tokens = ranks()
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    count, kept = 8, len(tokens) - 10  # the last ten are padding
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
             for token, rank in tokens.items()]
    (OUT / "tekken/tekken.json").write_text(json.dumps({
        "config": {"pattern": CASED, "num_vocab_tokens": len(tokens), "default_vocab_size": kept + count,
                   "default_num_special_tokens": count, "version": "v7"},
        "vocab": vocab,
        "special_tokens": [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(special)]}))
    names = special + [f"<SPECIAL_{i}>" for i in range(len(special), count)]
    encoding = tiktoken.Encoding(
        "test", pat_str=CASED, mergeable_ranks={t: r for t, r in tokens.items() if r < kept},
        special_tokens={name: kept + i for i, name in enumerate(names)})
    rows = []
    for text in texts(3) + ["[INST]Hello[/INST] a</s>", "<SPECIAL_7>"]:
        ids = encoding.encode(text, allowed_special="all")
        rows.append({"text": text, "ids": [i - kept if i >= kept else i + count for i in ids], "decoded": encoding.decode(ids)})
    write_rows("tekken", rows)


def make_normalizers():
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((OUT / "sentencepiece_unigram/tokenizer.model").read_bytes())
    charsmap = model.normalizer_spec.precompiled_charsmap
    normalizer = tokenizers.normalizers.Precompiled(charsmap)
    rows = [{"text": text, "normalized": normalizer.normalize_str(text)} for text in texts(4)]
    (OUT / "normalizers.json").write_text(json.dumps(
        {"precompiled_charsmap": base64.b64encode(charsmap).decode(), "rows": rows}, indent=0))


def make_affixes():
    cases = []
    for prefix, suffix, unknown in (("", "</w>", "<unk>"), ("##", "", "<unk>"), ("##", "</w>", None)):
        model = tokenizers.models.BPE(unk_token=unknown, continuing_subword_prefix=prefix, end_of_word_suffix=suffix)
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        affixes = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=300, special_tokens=[unknown] if unknown else [], show_progress=False,
            **{key: value for key, value in affixes.items() if value})
        tokenizer.train_from_iterator(CORPUS.splitlines()[:200], trainer)
        rows = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts(5)]
        cases.append({"tokenizer": json.loads(tokenizer.to_str()), "rows": rows})
    (OUT / "bpe_affixes.json").write_text(json.dumps(cases))


def main():
    train_sentencepiece("sentencepiece_bpe", model_type="bpe", vocab_size=560, byte_fallback=True,
                        user_defined_symbols=["<tool>", "tata"], normalization_rule_name="identity",
                        remove_extra_whitespaces=False)
    rules = rules_file()
    train_sentencepiece("sentencepiece_unigram", model_type="unigram", vocab_size=300,
                        user_defined_symbols=["<tool>"], normalization_rule_tsv=str(rules))
    rules.unlink()
    make_tiktoken()
    make_tekken()
    make_normalizers()
    make_affixes()


main()
