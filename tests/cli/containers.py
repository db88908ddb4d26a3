"""Writes a checkpoint's tensors in other containers, with Python's own pickle and zipfile: files of torch.save, arrays of
numpy. Neither library is needed."""

import collections
import io
import json
import pickle
import struct
import sys
import types
import zipfile

STORAGES = {"F32": ("FloatStorage", 4, "<f4"), "F16": ("HalfStorage", 2, "<f2"), "BF16": ("BFloat16Storage", 2, "<V2"),
            "BOOL": ("BoolStorage", 1, "|b1")}
MAGIC = 0x1950A86A20F9469CFC6C


def fake_torch():
    """Classes and functions that pickles of torch name; none of them does anything."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name, _, _ in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*parts):
        raise AssertionError("nothing is unpickled here")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    torch._utils = utils
    sys.modules.setdefault("torch", torch)
    sys.modules.setdefault("torch._utils", utils)
    return torch


TORCH = fake_torch()


class Storage:
    def __init__(self, key, dtype, data):
        self.key, self.dtype, self.data = key, dtype, data

    def elements(self):
        return len(self.data) // STORAGES[self.dtype][1]


class Tensor:
    def __init__(self, storage, shape, stride, offset=0):
        self.parts = (storage, offset, tuple(shape), tuple(stride), False, collections.OrderedDict())

    def __reduce_ex__(self, protocol):
        return TORCH._utils._rebuild_tensor_v2, self.parts


class Pickler(pickle.Pickler):
    legacy = False

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        name = STORAGES[value.dtype][0]
        return ("storage", getattr(TORCH, name), value.key, "cpu", value.elements()) + ((None,) if self.legacy else ())


def pickled(value, protocol=2, legacy=False):
    file = io.BytesIO()
    pickler = Pickler(file, protocol=protocol)
    pickler.legacy = legacy
    pickler.dump(value)
    return file.getvalue()


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return found


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, held) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(held)]}
        data += held
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def exchanged(shape, data, size):
    """The bytes of a matrix by columns."""
    rows, cols = shape
    pieces = [data[i * size:(i + 1) * size] for i in range(rows * cols)]
    return b"".join(pieces[r * cols + c] for c in range(cols) for r in range(rows))


def strides(shape):
    found, step = [], 1
    for size in reversed(shape):
        found.insert(0, step)
        step *= size
    return found


def state_dict(tensors, turned=()):
    """Vectors share one storage; those of `turned` lie by columns."""
    storages, state, shared = [], collections.OrderedDict(), {}
    for name, (dtype, shape, data) in tensors.items():
        size = STORAGES[dtype][1]
        if len(shape) == 1:
            if dtype not in shared:
                shared[dtype] = Storage(str(len(storages)), dtype, b"\0" * 3 * size)
                storages.append(shared[dtype])
            storage = shared[dtype]
            state[name] = Tensor(storage, shape, [1], storage.elements())
            storage.data += data
            continue
        by_columns = name in turned
        storages.append(Storage(str(len(storages)), dtype, exchanged(shape, data, size) if by_columns else data))
        state[name] = Tensor(storages[-1], shape, [1, shape[0]] if by_columns else strides(shape))
    state._metadata = {"": {"version": 1}}
    return state, storages


def write_torch(path, tensors, turned=(), protocol=2, wrap=lambda state: state, compression=zipfile.ZIP_STORED,
                byteorder="little"):
    state, storages = state_dict(tensors, turned)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled(wrap(state), protocol))
        archive.writestr("archive/byteorder", byteorder)
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", storage.data)
        archive.writestr("archive/version", "3\n")


def write_legacy_torch(path, tensors, turned=()):
    state, storages = state_dict(tensors, turned)
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    with open(path, "wb") as file:
        for value in (MAGIC, 1001, machine, state):
            file.write(pickled(value, legacy=True))
        file.write(pickle.dumps(sorted(s.key for s in storages), protocol=2))
        for storage in sorted(storages, key=lambda s: s.key):
            file.write(struct.pack("<q", storage.elements()) + storage.data)


def npy(dtype, shape, data, fortran=False):
    size, kind = STORAGES[dtype][1:]
    if fortran:
        data = exchanged(shape, data, size)
    header = str({"descr": kind, "fortran_order": fortran, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def write_npz(path, tensors, turned=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, (dtype, shape, data) in tensors.items():
            archive.writestr(f"{name}.npy", npy(dtype, shape, data, name in turned))


def write_npcache(folder, tensors, turned=(), ending=".npy"):
    folder.mkdir()
    (folder / "weight_names.json").write_text(json.dumps(list(tensors)))
    for name, (dtype, shape, data) in tensors.items():
        (folder / f"{name}{ending}").write_bytes(npy(dtype, shape, data, name in turned))


def read_gguf(path):
    """Tensors of a GGUF file without quantized ones: their shapes, without dimensions of 1, and their floats' bits."""
    data, at = path.read_bytes(), 24
    tensors, keys = struct.unpack_from("<8xQQ", data)
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(form):
        nonlocal at
        (value,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return value

    def text():
        nonlocal at
        size = number("<Q")
        at += size
        return data[at - size:at].decode()

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            inner, count = number("<I"), number("<Q")
            for _ in range(count):
                skip(inner)
        else:
            at += sizes[kind]

    for _ in range(keys):
        text()
        skip(number("<I"))
    found = []
    for _ in range(tensors):
        name = text()
        shape = [number("<Q") for _ in range(number("<I"))]
        found.append((name, shape, number("<I"), number("<Q")))
    begin, made = -(-at // 32) * 32, {}
    for name, shape, kind, offset in found:
        count = 1
        for size in shape:
            count *= size
        raw = data[begin + offset:begin + offset + count * (4 if kind == 0 else 2)]
        made[name] = ([size for size in shape if size > 1], kind, raw)
    return made
