#include "io/checkpoint/torch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "io/checkpoint/pickle.h"
#include "io/checkpoint/torch_types.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

using PickleKind = PickleValue::Kind;

constexpr uint64_t kMostPickleBytes = 64 * MiB;
constexpr std::string_view kDataPickle = "data.pkl";
constexpr std::string_view kSaveAgain =
    "; save it again: torch.save({k: v.contiguous() for k, v in d.items()}, FILE)";

std::vector<std::string_view> torch_global_names() {
  std::vector<std::string_view> names;
  for (const TorchGlobal& g : kTorchGlobals) names.push_back(g.name);
  return names;
}

// The bytes of a storage in the file.
struct StoragePlace {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
using StoragePlaces = std::unordered_map<std::string_view, StoragePlace>;  // by key

// A persistent id.
struct StorageId {
  std::string_view key;
  DType dtype = DType::u8;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

// Reads what a pickle of torch.save says of its tensors.
class StateDict {
 public:
  StateDict(const Pickle& pickle, const std::string& where) : pickle_(pickle), where_(where) {}

  StorageId storage_id(const PickleValue& persistent) const;
  std::vector<StoredTensor> tensors(const StoragePlaces& places) const;

 private:
  const TorchGlobal* global_of(const PickleValue& value) const {
    return value.kind == PickleKind::global && value.number >= 0
               ? &kTorchGlobals[static_cast<size_t>(value.number)]
               : nullptr;
  }
  // The function of a call; null for another value.
  const TorchGlobal* called(const PickleValue& value) const {
    return value.kind == PickleKind::call ? global_of(pickle_.items(value)[0]) : nullptr;
  }
  std::span<const PickleValue> arguments(const PickleValue& call) const {
    return pickle_.items(pickle_.items(call)[1]);
  }
  bool is_tensor(const PickleValue& value) const {
    const TorchGlobal* function = called(value);
    return function != nullptr &&
           (function->role == TorchRole::tensor || function->role == TorchRole::tensor_v3 ||
            function->role == TorchRole::parameter);
  }
  const PickleValue& state_dict() const;
  bool has_tensors(const PickleValue& dict) const;
  const PickleValue* named(const PickleValue& dict, std::string_view key) const;
  StoredTensor tensor(std::string_view name, PickleValue value, const StoragePlaces& places) const;
  std::vector<int64_t> numbers(std::string_view name, std::string_view what,
                               PickleValue value) const;
  [[noreturn]] void refuse(std::string_view fault) const {
    fail(ErrorKind::refused, "{}: {}", where_, fault);
  }
  [[noreturn]] void refuse_tensor(std::string_view name, std::string_view fault) const {
    fail(ErrorKind::refused, "{}: tensor {}: {}", where_, printable(name), fault);
  }

  const Pickle& pickle_;
  const std::string& where_;
};

StorageId StateDict::storage_id(const PickleValue& persistent) const {
  const PickleValue& id = pickle_.items(persistent)[0];
  if (id.kind != PickleKind::tuple)
    refuse("a persistent id of the pickle is not a tuple of a storage");
  const auto parts = pickle_.items(id);
  const bool fits = (parts.size() == 5 || parts.size() == 6) && parts[0].kind == PickleKind::text &&
                    pickle_.text(parts[0]) == "storage" && parts[2].kind == PickleKind::text &&
                    parts[4].kind == PickleKind::integer;
  const TorchGlobal* type = fits ? global_of(parts[1]) : nullptr;
  if (type == nullptr || (type->role != TorchRole::storage && type->role != TorchRole::bytes))
    refuse("a persistent id of the pickle is not a tuple of a storage");
  if (parts.size() == 6 && parts[5].kind != PickleKind::none)
    refuse("a storage is a view of another one, as very old versions of PyTorch saved it");
  StorageId storage{pickle_.text(parts[2]), type->dtype, 0, 0};
  const auto is_plain = [](char c) { return c != '/' && c != '\\' && c > ' ' && c < 0x7f; };
  if (storage.key.empty() || storage.key.size() > 64 || storage.key.starts_with('.') ||
      !std::ranges::all_of(storage.key, is_plain))
    refuse(fmt::format("the key of a storage, '{}', is not a plain name", printable(storage.key)));
  if (parts[4].number < 0)
    refuse(fmt::format("storage {} has a negative number of elements", storage.key));
  storage.elements = static_cast<uint64_t>(parts[4].number);
  if (__builtin_mul_overflow(storage.elements, static_cast<uint64_t>(dtype_bytes(storage.dtype)),
                             &storage.bytes))
    refuse(fmt::format("storage {} claims {} elements: their bytes overflow 64 bits", storage.key,
                       storage.elements));
  return storage;
}

const PickleValue* StateDict::named(const PickleValue& dict, std::string_view key) const {
  const auto items = pickle_.items(dict);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind == PickleKind::text && pickle_.text(items[i]) == key) return &items[i + 1];
  }
  return nullptr;
}

bool StateDict::has_tensors(const PickleValue& dict) const {
  const auto items = pickle_.items(dict);
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    if (is_tensor(items[i + 1])) return true;
  return false;
}

const PickleValue& StateDict::state_dict() const {
  constexpr int kDeepest = 4;
  constexpr std::string_view kNames[] = {"state_dict", "model_state_dict", "model", "module"};
  const PickleValue* at = &pickle_.top();
  for (int depth = 0; depth < kDeepest && at->kind == PickleKind::dict; ++depth) {
    if (has_tensors(*at)) return *at;
    const PickleValue* next = nullptr;
    for (std::string_view name : kNames)
      if (next == nullptr) next = named(*at, name);
    if (next == nullptr) break;
    at = next;
  }
  refuse(is_tensor(pickle_.top()) ? "holds one tensor without a name, not a dict of tensors"
                                  : "its pickle is not a dict of tensors (nor is its state_dict, "
                                    "model_state_dict, model or module)");
}

std::vector<int64_t> StateDict::numbers(std::string_view name, std::string_view what,
                                        PickleValue value) const {
  const TorchGlobal* function = called(value);
  if (function != nullptr && function->role == TorchRole::size && arguments(value).size() == 1)
    value = arguments(value)[0];
  if (value.kind != PickleKind::tuple && value.kind != PickleKind::list)
    refuse_tensor(name, fmt::format("its {} is not a tuple of numbers", what));
  std::vector<int64_t> all;
  for (const PickleValue& number : pickle_.items(value)) {
    if (number.kind != PickleKind::integer)
      refuse_tensor(name, fmt::format("its {} has something that is no number of 64 bits", what));
    if (number.number < 0)
      refuse_tensor(name, fmt::format("has a negative {} ({})", what, number.number));
    all.push_back(number.number);
    if (all.size() > Shape::kMaxDims)
      refuse_tensor(name, fmt::format("has too many dimensions (more than {})", Shape::kMaxDims));
  }
  return all;
}

// Elements from the first to the last, both included; nullopt where that overflows.
std::optional<uint64_t> reach(std::span<const int64_t> size, std::span<const int64_t> stride) {
  uint64_t last = 0;
  for (size_t i = 0; i < size.size(); ++i) {
    uint64_t far = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(size[i] - 1), static_cast<uint64_t>(stride[i]),
                               &far) ||
        __builtin_add_overflow(last, far, &last))
      return std::nullopt;
  }
  return last < UINT64_MAX ? std::optional(last + 1) : std::nullopt;
}

// True where elements follow one another without a gap in the order of the dimensions.
bool is_by_rows(std::span<const int64_t> size, std::span<const int64_t> stride) {
  int64_t expected = 1;
  for (size_t i = size.size(); i-- > 0;) {
    if (size[i] == 1) continue;
    if (stride[i] != expected || __builtin_mul_overflow(expected, size[i], &expected)) return false;
  }
  return true;
}

StoredTensor StateDict::tensor(std::string_view name, PickleValue value,
                               const StoragePlaces& places) const {
  constexpr int kDeepest = 4;
  for (int i = 0; i < kDeepest && called(value)->role == TorchRole::parameter; ++i) {
    if (arguments(value).empty() || !is_tensor(arguments(value)[0]))
      refuse_tensor(name, "is a parameter without a tensor");
    value = arguments(value)[0];
  }
  const auto parts = arguments(value);
  const TorchRole role = called(value)->role;
  const bool fits = (role == TorchRole::tensor && parts.size() >= 4) ||
                    (role == TorchRole::tensor_v3 && parts.size() >= 7);
  if (!fits || parts[0].kind != PickleKind::persistent || parts[1].kind != PickleKind::integer)
    refuse_tensor(name, "is not made of a storage, an offset, a size and strides");
  const StorageId storage = storage_id(parts[0]);
  StoredTensor tensor;
  tensor.name = name;
  tensor.dtype = storage.dtype;
  if (role == TorchRole::tensor_v3) {
    const TorchGlobal* type = global_of(parts[6]);
    if (type == nullptr || type->role != TorchRole::dtype)
      refuse_tensor(name, "has a type that is not known");
    tensor.dtype = type->dtype;
  }
  if (parts[1].number < 0)
    refuse_tensor(name, fmt::format("has a negative storage offset ({})", parts[1].number));
  std::vector<int64_t> size = numbers(name, "size", parts[2]);
  std::vector<int64_t> stride = numbers(name, "stride", parts[3]);
  if (size.size() != stride.size())
    refuse_tensor(name, "has a size and strides that differ in number");
  const StoragePlace& place = places.at(storage.key);
  tensor.offset = place.offset;
  if (!std::ranges::count(size, 0)) {
    const auto offset = static_cast<uint64_t>(parts[1].number);
    const uint64_t elements = storage.bytes / static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    const std::optional<uint64_t> reached = reach(size, stride);
    if (!reached) refuse_tensor(name, "its strides overflow 64 bits");
    if (offset > elements || *reached > elements - offset)
      refuse_tensor(name, fmt::format("needs more elements than its storage has ({})", elements));
    tensor.offset += offset * static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    const size_t dims = size.size();
    const std::vector<int64_t> stored = stride;
    if (!is_by_rows(size, stride) && dims >= 2) {
      std::swap(size[dims - 1], size[dims - 2]);
      std::swap(stride[dims - 1], stride[dims - 2]);
      tensor.column_major = true;
    }
    if (!is_by_rows(size, stride))
      refuse_tensor(name, fmt::format("is a view whose elements do not follow one another (strides "
                                      "{}), which is not read{}",
                                      fmt::join(stored, ", "), kSaveAgain));
  }
  for (int64_t dim : size) tensor.shape.push_back(dim);
  const std::optional<uint64_t> bytes = stored_bytes(tensor.dtype, tensor.shape);
  if (!bytes) refuse_tensor(name, "its size overflows 64 bits");
  tensor.bytes = *bytes;
  return tensor;
}

std::vector<StoredTensor> StateDict::tensors(const StoragePlaces& places) const {
  std::vector<StoredTensor> all;
  const auto items = pickle_.items(state_dict());
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!is_tensor(items[i + 1])) continue;
    if (items[i].kind != PickleKind::text) refuse("a tensor has a name that is no text");
    all.push_back(tensor(pickle_.text(items[i]), items[i + 1], places));
  }
  return all;
}

std::string read_part(const Fd& fd, const CheckpointFile& file, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  read_exactly(fd, file.path, offset, text);
  return text;
}

// The archive's members by name, under the folder that has its data.pkl.
class TorchArchive {
 public:
  TorchArchive(std::span<const ZipMember> members, const std::string& where) : where_(where) {
    std::optional<std::string_view> folder;
    for (const ZipMember& m : members) {
      if (!m.name.ends_with(kDataPickle)) continue;
      const std::string_view before =
          std::string_view(m.name).substr(0, m.name.size() - kDataPickle.size());
      if (!before.empty() && (!before.ends_with('/') || before.find('/') + 1 != before.size()))
        continue;
      if (folder) fail(ErrorKind::refused, "{}: the archive has two data.pkl", where_);
      folder = before;
    }
    if (!folder) {
      fail(ErrorKind::refused, "{}: the archive has no data.pkl (its first member is {})", where_,
           members.empty() ? "not there" : printable(members.front().name));
    }
    for (const ZipMember& m : members)
      if (m.name.starts_with(*folder)) by_name_.emplace(m.name.substr(folder->size()), &m);
  }

  const ZipMember* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  // A member that is there, and whose data lie in the file.
  const ZipMember& get(const std::string& name) const {
    const ZipMember* member = find(name);
    if (member == nullptr) fail(ErrorKind::refused, "{}: {} is not in the archive", where_, name);
    if (!member->stored)
      fail(ErrorKind::refused,
           "{}: member {} is compressed ({}), and weights are read in any order; save it again: "
           "torch.save(torch.load(FILE, weights_only=True), FILE)",
           where_, printable(member->name), format_size(member->bytes));
    return *member;
  }

 private:
  const std::string& where_;
  std::unordered_map<std::string, const ZipMember*> by_name_;
};

// Compares small storages with their checksums; the load reads others. A file of torch.save without
// checksums (set_crc32_options) has none for its pickle either.
void check_storages(const Fd& fd, const CheckpointFile& file, const ZipMember& pickle,
                    std::span<const ZipMember* const> storages, const std::string& where) {
  constexpr uint64_t kSmall = 64 * KiB, kMostInAll = 16 * MiB;
  if (!has_its_crc(fd, file, pickle)) return;
  uint64_t in_all = 0;
  for (const ZipMember* m : storages) {
    if (m->bytes > kSmall || in_all + m->bytes > kMostInAll) continue;
    in_all += m->bytes;
    if (!has_its_crc(fd, file, *m))
      fail(ErrorKind::refused, "{}: {} has not its CRC: the file is damaged; fetch it again", where,
           printable(m->name));
  }
}

// Refuses a file of a machine whose numbers begin with their highest bytes.
void check_byte_order(const Fd& fd, const CheckpointFile& file, const TorchArchive& archive,
                      const std::string& where) {
  const ZipMember* member = archive.find("byteorder");
  if (member == nullptr || !member->stored || member->bytes > 16) return;
  if (const std::string order = read_part(fd, file, member->offset, member->bytes);
      order != "little")
    fail(ErrorKind::refused, "{}: its byte order is {}; only little-endian files are read", where,
         printable(order));
}

}  // namespace

bool is_torch_archive(std::span<const ZipMember> members) {
  return std::ranges::any_of(members,
                             [](const ZipMember& m) { return m.name.ends_with(kDataPickle); });
}

std::vector<StoredTensor> read_torch_archive(const Fd& fd, const CheckpointFile& file,
                                             std::span<const ZipMember> members,
                                             const std::string& where) {
  const TorchArchive archive(members, where);
  check_byte_order(fd, file, archive, where);
  const ZipMember& member = archive.get(std::string(kDataPickle));
  if (member.bytes > kMostPickleBytes)
    fail(ErrorKind::refused, "{}: data.pkl has {}, more than the {} that are accepted", where,
         format_size(member.bytes), format_size(kMostPickleBytes));
  const std::string text = read_part(fd, file, member.offset, member.bytes);
  const Pickle pickle(text, torch_global_names(), where);
  const StateDict dict(pickle, where);
  StoragePlaces places;
  std::vector<const ZipMember*> storages;
  for (const PickleValue& persistent : pickle.persistent()) {
    const StorageId storage = dict.storage_id(persistent);
    const ZipMember& data = archive.get(fmt::format("data/{}", storage.key));
    if (storage.bytes > data.bytes)
      fail(ErrorKind::refused, "{}: storage {} claims {} elements, more than data/{} holds", where,
           storage.key, storage.elements, storage.key);
    if (places.try_emplace(storage.key, data.offset, data.bytes).second) storages.push_back(&data);
  }
  check_storages(fd, file, member, storages, where);
  return dict.tensors(places);
}

namespace {

// The pickles at the beginning of a file, in growing parts, because nothing says how long they are.
class PickleStream {
 public:
  PickleStream(const Fd& fd, const CheckpointFile& file, const std::string& where)
      : fd_(fd), file_(file), where_(where) {}

  // The next pickle, which this outlives.
  Pickle next() {
    constexpr uint64_t kFirst = 256 * KiB;
    const uint64_t most = std::min(file_.size - at_, kMostPickleBytes);
    for (uint64_t bytes = std::min(kFirst, most);; bytes = std::min(bytes * 4, most)) {
      texts_.push_back(read_part(fd_, file_, at_, bytes));
      try {
        Pickle pickle(texts_.back(), names_, where_);
        at_ += pickle.bytes();
        return pickle;
      } catch (const PickleEndsEarly&) {
        if (bytes == most) throw;
        texts_.pop_back();
      }
    }
  }
  uint64_t at() const { return at_; }

 private:
  const Fd& fd_;
  const CheckpointFile& file_;
  const std::string& where_;
  std::vector<std::string_view> names_ = torch_global_names();
  uint64_t at_ = 0;
  std::deque<std::string> texts_;
};

// The head of the older files: a magic number, a version, and facts of the machine.
void read_stream_head(PickleStream& stream, const std::string& where) {
  constexpr int64_t kVersion = 1001;
  const auto refuse = [&](std::string_view fault) {
    fail(ErrorKind::refused, "{}: is no file of torch.save: {}", where, fault);
  };
  if (stream.next().top().kind != PickleKind::big_integer) refuse("it has not its magic number");
  const PickleValue version = stream.next().top();
  if (version.kind != PickleKind::integer || version.number != kVersion)
    refuse("its version is not 1001");
  const Pickle machine = stream.next();
  if (machine.top().kind != PickleKind::dict) refuse("it does not say of which machine it is");
  const auto facts = machine.items(machine.top());
  for (size_t i = 0; i + 1 < facts.size(); i += 2) {
    if (facts[i].kind != PickleKind::text || machine.text(facts[i]) != "little_endian") continue;
    if (facts[i + 1].kind != PickleKind::boolean || facts[i + 1].number == 0)
      refuse("it is of a machine that is not little-endian");
  }
}

// The storages follow the list of their keys, each with a count of its elements before it.
StoragePlaces find_storages(const Fd& fd, const CheckpointFile& file, const Pickle& keys,
                            uint64_t at, const std::unordered_map<std::string_view, StorageId>& ids,
                            const std::string& where) {
  StoragePlaces places;
  if (keys.top().kind != PickleKind::list)
    fail(ErrorKind::refused, "{}: has no list of its storages", where);
  for (const PickleValue& key : keys.items(keys.top())) {
    const auto id = key.kind == PickleKind::text ? ids.find(keys.text(key)) : ids.end();
    if (id == ids.end()) fail(ErrorKind::refused, "{}: lists a storage that no tensor has", where);
    uint64_t elements = 0;
    if (file.size - at < sizeof elements)
      fail(ErrorKind::refused, "{}: ends before storage {}", where, id->first);
    read_exactly(fd, file.path, at, {reinterpret_cast<char*>(&elements), sizeof elements});
    at += sizeof elements;
    if (elements != id->second.elements)
      fail(ErrorKind::refused, "{}: storage {} has {} elements, where its tensors expect {}", where,
           id->first, elements, id->second.elements);
    if (id->second.bytes > file.size - at)
      fail(ErrorKind::refused,
           "{}: ends within storage {}: the file is damaged or was not downloaded completely",
           where, id->first);
    if (!places.try_emplace(id->first, at, id->second.bytes).second)
      fail(ErrorKind::refused, "{}: lists storage {} twice", where, id->first);
    at += id->second.bytes;
  }
  return places;
}

}  // namespace

std::vector<StoredTensor> read_torch_stream(const Fd& fd, const CheckpointFile& file,
                                            const std::string& where) {
  PickleStream stream(fd, file, where);
  read_stream_head(stream, where);
  const Pickle pickle = stream.next();
  const StateDict dict(pickle, where);
  std::unordered_map<std::string_view, StorageId> ids;
  for (const PickleValue& persistent : pickle.persistent()) {
    const StorageId id = dict.storage_id(persistent);
    const auto [known, fresh] = ids.try_emplace(id.key, id);
    if (!fresh && (known->second.elements != id.elements || known->second.dtype != id.dtype))
      fail(ErrorKind::refused, "{}: storage {} is described in two ways", where, id.key);
  }
  const Pickle keys = stream.next();
  const StoragePlaces places = find_storages(fd, file, keys, stream.at(), ids, where);
  for (const auto& [key, id] : ids) {
    if (!places.contains(key))
      fail(ErrorKind::refused, "{}: storage {} is not in its list", where, key);
  }
  return dict.tensors(places);
}

}  // namespace sluice::io
