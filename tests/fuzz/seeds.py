#!/usr/bin/env python3
"""Writes what fuzzing begins with: seeds.py OUT makes OUT/TARGET/ for each target.

Good files and bad ones of tests/data, tools/demo-model and, where they are there, of the shared
fixtures; what is in seeds/TARGET/ and regressions/TARGET/ beside this file; and small texts.
"""

import base64
import json
import os
import pathlib
import pickle
import shutil
import struct
import sys
import tempfile
import zipfile
from itertools import islice

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "cli"))
import containers
DATA = ROOT / "tests/data"
DEMO = ROOT / "tools/demo-model"
SHARED = pathlib.Path(os.environ.get("SLUICE_ORACLE", ROOT.parent / "shared/oracle/fixtures"))
MOST_BYTES = 40_000  # what is learned from a file is how it is made


def files(*patterns):
    """Small files of all places that match, in a fixed order."""
    for place in (DATA, DEMO, SHARED):
        for pattern in patterns:
            for path in sorted(place.glob(pattern)):
                if path.is_file() and path.stat().st_size <= MOST_BYTES:
                    yield path.read_bytes()


def joined(*parts):
    return b"\0".join(p if isinstance(p, bytes) else p.encode() for p in parts)


def part_of_a_cut_checkpoint():
    """A file of Meta's: matrices cut by rows and by columns, and a vector of the model's width."""
    shapes = {"layers.0.attention.wq.weight": [2, 4], "layers.0.attention.wo.weight": [4, 2],
              "tok_embeddings.weight": [8, 2], "norm.weight": [4]}
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def lines_of(name, key):
    for blob in files(f"**/{name}"):
        for line in blob.splitlines():
            value = json.loads(line)[key]
            yield value.encode() if isinstance(value, str) else value


def small_tokenizer():
    """A byte-level tokenizer with one of each component, in a kilobyte."""
    letters = {c: i for i, c in enumerate("abcdefghij\u0120\u00c3\u00a9")}
    vocab = letters | {"ab": 13, "abc": 14, "<0x41>": 15, "<unk>": 16}
    split = {"type": "Split", "pattern": {"Regex": "\\s+|\\p{L}+"}, "behavior": "Isolated",
             "invert": False}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"<s>": {"ids": [20]}}}
    token = {"id": 20, "content": "<s>", "single_word": False, "lstrip": True, "rstrip": True,
             "normalized": False, "special": True}
    replace = {"type": "Replace", "pattern": {"String": "x"}, "content": "y"}
    return {
        "version": "1.0",
        "added_tokens": [token],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": t} for t in ("NFC", "NFKD", "Lowercase", "Strip")] + [
            replace, {"type": "Prepend", "prepend": "a"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            split, {"type": "Digits"}, {"type": "Punctuation"}, {"type": "WhitespaceSplit"},
            {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}]},
        "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]},
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], "ab c"],
                  "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True,
                  "ignore_merges": True},
    }


def other_tokenizers():
    """The other models, each with the components that go with it."""
    base = {"version": "1.0", "added_tokens": small_tokenizer()["added_tokens"]}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}
    scores = [["<unk>", 0], ["a", -1], ["b", -2.5], ["ab", -2], ["\u2581", -1], ["\u2581ab", -3]]
    yield base | {
        "normalizer": {"type": "Sequence",
                       "normalizers": [{"type": "Nmt"}, {"type": "StripAccents"}]},
        "pre_tokenizer": metaspace, "decoder": metaspace,
        "post_processor": {"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 2]},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": True}}
    yield base | {
        "normalizer": {"type": "BertNormalizer", "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 8,
                  "vocab": {"[UNK]": 0, "a": 1, "##b": 2, "##bc": 3, ".": 4}}}


def rope_configs():
    factors = [1.0] * 8
    kinds = [
        {"rope_type": "default"},
        {"type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
         "mscale_all_dim": 0.5, "original_max_position_embeddings": 64, "truncate": False},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        {"rope_type": "longrope", "short_factor": factors, "long_factor": factors,
         "attention_factor": 1.2, "original_max_position_embeddings": 64},
    ]
    return [json.dumps({"rope_theta": 10000.0, "rope_scaling": k}) for k in kinds]


def patterns():
    texts = ["It's 12 o'clock\n  \u00e9t\u00e9 <s> ", "aaaaaaaaaaaaaaaaab"]
    expressions = [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        r"(?:a+)+b", r"\bA\B|\x{e9}\u00e9\x41", r"[\w\x{200c}]+|[^\w\s]{2,}?", r"(?<=a)b|(?<!c)d",
        r"a{3}+b{,4}c{2}?d*+", r"[[:space:][:punct:]]|\h\H", r"(?m)^.$|(?#x)\z", r"\p{^Lu}\P{Han}",
        r"(?>a|ab)c|()", r"\s{2,}|$", "[]-a]",
    ]
    return [joined(e, t) for e in expressions for t in texts]


def texts():
    yield from lines_of("strings.jsonl", "text")
    yield "<|begin_of_text|>a <|eot_id|>".encode()
    yield "\u1e9b\u0323 e\u0301 \uac00 \U0001f600".encode()
    yield bytes(range(256))


def chat_templates():
    for line in (DATA / "jinja/units.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield joined(row["template"], json.dumps({"messages": [], "variables": row["variables"]}))
    for folder in sorted((DATA / "jinja/chats").iterdir()):
        template = (folder / "chat_template.jinja").read_text()
        for line in (folder / "renders.jsonl").read_text().splitlines()[:4]:
            row = json.loads(line)
            yield joined(template, json.dumps({k: row[k] for k in ("messages", "variables")}))


def completions():
    body = {"model": "m", "prompt": "x", "max_tokens": 3, "stop": ["a"], "logit_bias": {"1": 2},
            "n": 2, "seed": 7, "logprobs": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 4,
            "allowed_token_ids": [1, 2], "stop_token_ids": [3], "priority": -4, "stream": False}
    several = {"prompt": ["x", [1, 2], "\u00e9"], "echo": True, "max_tokens": 0, "logprobs": 1}
    benign = {"prompt": "", "suffix": "", "response_format": {"type": "text"}, "seed": -1, "tools": None,
              "max_completion_tokens": 2, "skip_special_tokens": False, "user": "u", "prompt_logprobs": 0}
    return [json.dumps(b) for b in (body, {"prompt": [1, 2, 3], "ignore_eos": True}, several, benign)]


def requests():
    """Of each path, by its number, with answers that think and call."""
    said = '<think>why</think>yes \u00e9<tool_call>\n{"name": "f", "arguments": {"a": [1, "x"]}}\n</tool_call>'
    parameters = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "string"}}, "required": ["a"]}
    function = {"name": "f", "description": "d", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1]}"}}
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "t"}]
    chat = {"messages": messages, "tools": tools, "max_completion_tokens": 4, "temperature": 0.5, "stop": ["a"],
            "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low", "n": 2, "logprobs": True,
            "top_logprobs": 2}
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": parameters}}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    blocks = [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "v"},
              {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": [1]}}]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "t"}]}
    told = {"system": [{"type": "text", "text": "s"}], "tools": [{"name": "f", "input_schema": parameters}],
            "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": blocks},
                         {"role": "user", "content": [result, {"type": "text", "text": "w"}]}]}
    message = {**told, "max_tokens": 4, "stop_sequences": ["x"], "tool_choice": {"type": "auto"}, "metadata": {},
               "thinking": {"type": "enabled", "budget_tokens": 9}}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "u"}]},
             {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "v"}]},
             {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c1", "output": "t"}]
    response = {"input": items, "instructions": "s", "tools": [{"type": "function", **function}], "max_output_tokens": 4,
                "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_schema", "schema": parameters}}}
    bodies = [("0", json.loads(body)) for body in completions()]
    bodies += [("0", {"prompt": ["x", [1, 2]], "logprobs": 2, "n": 2, "response_format": schema, **stream}),
               ("1", chat), ("1", {**chat, **stream}), ("1", {"messages": messages[:2], "response_format": schema}),
               ("2", message), ("2", {**message, "stream": True}), ("3", told), ("4", response),
               ("4", {**response, "stream": True}), ("4", {"input": "u"}), ("8", response),
               ("5", {"prompt": "Anne had", "return_token_strs": True}), ("5", {"messages": messages, "tools": tools}),
               ("6", {"tokens": [5, 6, 7]}), ("7", {"input": ["Anne", "had"], "encoding_format": "base64"}),
               ("7", {"input": [[1, 2], [3]], "dimensions": 4}),
               ("1", {**chat, "tool_choice": "required", "parallel_tool_calls": False})]
    return [joined(number, json.dumps(body), said) for number, body in bodies]


def grammars():
    """A seed of each kind, and schemas of the golden ones."""
    schemas = [(line["schema"], line["accepted"][0]) for line in map(
        json.loads, (DATA / "grammar/schemas.jsonl").read_text().splitlines()[:12])]
    patterns = [(line["pattern"], line["accepted"][0]) for line in map(
        json.loads, (DATA / "grammar/patterns.jsonl").read_text().splitlines()[:12])]
    keywords = json.dumps({"type": ["object", "null"], "properties": {"a": {"$ref": "#/$defs/b"}},
                           "required": ["a"], "additionalProperties": {"minimum": -3, "maximum": 12},
                           "$defs": {"b": {"type": "array", "prefixItems": [{"format": "date"}],
                                           "items": {"enum": [1, "x"]}, "minItems": 1}}})
    gbnf = 'root ::= (a "," | [^x-z]{2,3})+ # c\na ::= "\\x41" root? | .'
    composed = json.dumps({"sequence": [
        {"repeat": {"sequence": [{"text": "<t>"}, {"without": "</t>"}, {"token": "</t>"}, {"space": 4}]}, "low": 0, "high": 1},
        {"choice": [{"schema": {"not": {}}, "of": "f", "or_object": True}, {"source": "regex", "text": "[ab]+"},
                    {"source": "gbnf", "text": 'root ::= "c"'}]}]})
    return ([joined("0", "", '{"a": [1, -2.5e3, {"b\\n": null}], "c": true}'),
             joined("1", keywords, '{"a": ["2024-01-31", 1], "c": 7}'),
             joined("3", '["yes", "no"]', "no"), joined("4", gbnf, "A,ab"),
             joined("5", composed, "<t>x < y</t>\n{\"a\": 1}"), joined("5", composed, "abab")]
            + [joined("1", *pair) for pair in schemas] + [joined("2", *pair) for pair in patterns])


def embedding_rules():
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
               for i, (name, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")))]
    flags = {"word_embedding_dimension": 64, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    for config in (flags, {"pooling_mode": "lasttoken"}, {"pooling_mode": ["max"]}):
        for count in (3, 2):
            yield joined(json.dumps(modules[:count]), json.dumps(config))


def ggufs():
    """A byte-level and a SentencePiece one, a model of one layer."""
    u32, u64 = (lambda v: struct.pack("<I", v)), (lambda v: struct.pack("<Q", v))
    string = lambda s: u64(len(s.encode())) + s.encode()
    strings = lambda v: u32(9) + u32(8) + u64(len(v)) + b"".join(map(string, v))
    numbers = lambda kind, v, code: u32(9) + u32(kind) + u64(len(v)) + struct.pack(f"<{len(v)}{code}", *v)
    tokens = ["<unk>", "<s>", "a", "b", "ab", "<0x41>", "\u2581", "\u0120"]
    common = {"general.architecture": u32(8) + string("llama"), "llama.block_count": u32(4) + u32(1),
              "llama.embedding_length": u32(4) + u32(8), "llama.attention.head_count": u32(4) + u32(2),
              "llama.rope.freq_base": u32(6) + struct.pack("<f", 1e4), "general.alignment": u32(4) + u32(32),
              "tokenizer.ggml.tokens": strings(tokens), "tokenizer.ggml.bos_token_id": u32(4) + u32(1),
              "tokenizer.ggml.token_type": numbers(5, [2, 3, 1, 1, 1, 6, 1, 1], "i"),
              "tokenizer.ggml.add_bos_token": u32(7) + b"\1"}
    kinds = [{"tokenizer.ggml.model": u32(8) + string("gpt2"), "tokenizer.ggml.pre": u32(8) + string("qwen2"),
              "tokenizer.ggml.merges": strings(["a b"])},
             {"tokenizer.ggml.model": u32(8) + string("llama"),
              "tokenizer.ggml.scores": numbers(6, [0, 0, -1, -1, -2, 0, -3, -4], "f")}]
    tensors = [("token_embd.weight", (8, 8), 1, 0), ("blk.0.attn_q.weight", (32, 2), 8, 128),
               ("rope_freqs.weight", (2,), 0, 224)]
    files = []
    for kind in kinds:
        keys = common | kind
        head = b"GGUF" + u32(3) + u64(len(tensors)) + u64(len(keys))
        head += b"".join(string(k) + v for k, v in keys.items())
        for name, dims, dtype, at in tensors:
            head += string(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(dtype) + u64(at)
        files.append(head + bytes(-len(head) % 32) + bytes(range(232)))
    return files


def batches():
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
    done = {"custom_id": "1", "response": {"status_code": 200}}
    return [json.dumps(line) + "\n\n" + json.dumps(line | {"custom_id": "2"}) + "\n",
            json.dumps(line | {"custom_id": 5}) + "\n{\n" + json.dumps(line) + "\n" + json.dumps(line),
            '{"custom_id": null, "id": "batch_line_2", "response": {}}\n',
            json.dumps(done) + '\n{"custom_id":"']


def vocabularies():
    for number, name in enumerate(("tokenizer.model", "tekken.json", "*.tiktoken")):
        for blob in files(f"text/**/{name}"):
            yield bytes([number]) + blob
    tokens = [{"rank": b, "token_bytes": base64.b64encode(bytes([b])).decode()} for b in range(256)]
    yield b"\1" + json.dumps({
        "config": {"pattern": r"\w+|\s+", "default_vocab_size": 260, "default_num_special_tokens": 4},
        "special_tokens": [{"rank": i, "token_str": name} for i, name in enumerate(("<unk>", "<s>", "</s>"))],
        "vocab": tokens}, separators=(",", ":")).encode()


def small_tensors():
    return {"a.weight": ("F16", [4, 6], bytes(range(48))), "b.weight": ("BF16", [3], b"abcdef"), "c": ("F32", [], b"1234")}


def made(write, *args, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file"
        write(path, *args, **options)
        return path.read_bytes()


def archives():
    tensors = small_tensors()
    for turned in ((), ("a.weight",)):
        for protocol in (2, 4):
            yield b"z" + made(containers.write_torch, tensors, turned, protocol)
        yield b"z" + made(containers.write_npz, tensors, turned)
        yield b"a" + containers.npy(*tensors["a.weight"], bool(turned))
    yield b"z" + made(containers.write_torch, tensors, compression=zipfile.ZIP_DEFLATED)
    for blob in files("malformed/pkl_*/*.bin", "malformed/zip_*/*.bin", "malformed/npz_*/*.npz"):
        yield b"z" + blob


def checkpoints():
    """Configs of stored formats with the tensors that belong to them, whose small ones have their bytes."""
    most_text, most_bytes = 40, 400
    for config in sorted(path for place in (DATA, SHARED) for path in place.glob("formats/*/config.json")):
        lines = []
        for path in sorted(config.parent.glob("model*.safetensors")):
            for name, (dtype, shape, data) in containers.read_safetensors(path).items():
                line = f"{name} {dtype} {'x'.join(map(str, shape))}".encode()
                has_text = len(data) <= (most_bytes if "quant_state" in name else most_text) and b"\n" not in data
                lines.append(line + b" =" + data if has_text else line)
        if lines:
            yield joined(config.read_bytes(), b"\n".join(lines))


def pickles():
    tensors = small_tensors()
    for turned in ((), ("a.weight",)):
        legacy = made(containers.write_legacy_torch, tensors, turned)
        yield legacy[legacy.index(b"type_sizes"):].split(b".", 1)[1]  # behind its head
        for protocol in range(2, 6):
            yield containers.pickled(containers.state_dict(tensors, turned)[0], protocol)
    for value in ({"a": [1, -2, 1 << 70, 2.5, None, True, "x", b"y", (1, 2, 3, 4)]}, {1, 2}, [[[]]], frozenset("a")):
        for protocol in range(6):
            yield pickle.dumps(value, protocol)


SEEDS = {
    "archive": archives,
    "batch": batches,
    "chat_template": chat_templates,
    "checkpoint": checkpoints,
    "completion": completions,
    "config": lambda: list(files("**/config.json")) + [
        joined(blob, '{"eos_token_id": [1, 2]}') for blob in files("models/*/config.json")],
    "detokenizer": lambda: [bytes([i % 2]) + bytes(range(256)) for i in range(2)]
    + [b"\0" + b"".join(i.to_bytes(2, "little") for i in range(1010))],
    "embedding_rules": embedding_rules,
    "gguf": lambda: list(files("**/*.gguf")) + ggufs(),
    "grammar": grammars,
    "host": lambda: ["localhost", "LOCALHOST.:8000", "127.0.0.1:80", "[::1]:8000", "[::ffff:127.0.0.1]", "a.example",
                     "evil.example:8000", "a b", "[::1", ":80", "."],
    "options": lambda: ["6GiB", "75%", "1e300", "5=1.5,7=-100", "1,2,3", "[1, 2]",
                        "layers.0-7=host,layers.*.mlp=disk", "fp8_per_channel", "auto", "4096"],
    "pattern": patterns,
    "pickle": pickles,
    "prompt_cache": lambda: [bytes([at % 256, at // 256, how]) + b"\1" for at in range(0, 9000, 500)
                             for how in range(2)],
    "rates": lambda: [
        '{"memory": 2e10, "disks": {"1": 1.5e9}}', "{}", json.dumps(
            {"disks": {"1": [{"rate": 3e9, "from": "bench disk"}, {"rate": 2e9, "from": "runs"}]},
             "sweeps": {"1 bf16 none": [{"rate": 2e9, "from": "runs"}]},
             "memory": {"host": [{"rate": 2e10, "from": "bench disk"}]},
             "steps": {"bf16 none auto 2 threads": [{"rate": 1.5e10, "from": "runs"}]},
             "links": {"a GPU": [{"rate": 2.5e10, "from": "bench disk"}]}})],
    "report": lambda: [],
    "requests": requests,
    "rope": rope_configs,
    "safetensors": lambda: [*files("**/*.safetensors"), part_of_a_cut_checkpoint()],
    "shard_index": lambda: files("**/*.index.json"),
    "spill_header": lambda: [joined(json.dumps(
        {"format": "sluice.spill/2", "model": "m", "scheme": "int8", "fingerprint": "f",
         "tensors": 1, "index_offset": 16384, "index_bytes": 64, "index_checksum": "c"}),
        bytes(17000))],
    "tokenizer": lambda: [joined(json.dumps(file), "AB <s> ab x\u00e9 abbc.")
                          for file in (small_tokenizer(), *other_tokenizers())]
    + list(files("**/tokenizer.json")),
    "tokenizer_text": texts,
    "utf8": lambda: [bytes([i]) + text for i, text in enumerate(islice(texts(), 200))],
    "vocabulary": vocabularies,
}


def write(out, target, make):
    folder = out / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    blobs = [b if isinstance(b, bytes) else b.encode() for b in make()]
    for number, blob in enumerate(dict.fromkeys(blobs)):
        (folder / f"seed-{number:03}").write_bytes(blob)
    for kind in ("seeds", "regressions"):
        for path in sorted((HERE / kind / target).glob("*")):
            shutil.copy(path, folder / f"{kind}-{path.name}")
    if not any(folder.iterdir()):
        raise SystemExit(f"seeds.py: {target} has no seeds")


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: seeds.py OUT")
    for target, make in SEEDS.items():
        write(pathlib.Path(sys.argv[1]), target, make)


if __name__ == "__main__":
    main()
