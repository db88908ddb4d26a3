#include "io/checkpoint/index.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "io/dummy.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

// Names end in messages, reports and, as keys, in other files.
constexpr size_t kMaxNameBytes = 1024;

bool has_control_character(std::string_view name) {
  return std::any_of(name.begin(), name.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

void check_tensor(const StoredTensor& tensor, const CheckpointFile& file) {
  auto refuse = [&](const std::string& fault) {
    fail(ErrorKind::refused, "{}: tensor {}: {}", printable(file.path.string()),
         printable(tensor.name), fault);
  };
  if (tensor.name.size() > kMaxNameBytes) {
    refuse(fmt::format("the name is {} bytes long, more than the {} that are accepted",
                       tensor.name.size(), kMaxNameBytes));
  }
  if (has_control_character(tensor.name)) {
    refuse("the name contains a control character (a NUL, a line break, ...)");
  }
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 0; })) {
    refuse(fmt::format("shape {} has a negative dimension", tensor.shape.str()));
  }
  const StoredType& type = stored_type(tensor.dtype);
  if (!has_whole_blocks(tensor.dtype, tensor.shape)) {
    refuse(fmt::format("shape {} is not a whole number of blocks: {} has {} elements a block",
                       tensor.shape.str(), type.name, type.block_elements));
  }
  const std::optional<uint64_t> bytes = stored_bytes(tensor.dtype, tensor.shape);
  if (!bytes) refuse(fmt::format("shape {} overflows 64 bits", tensor.shape.str()));
  if (*bytes != tensor.bytes) {
    refuse(fmt::format("shape {} of {} needs {} bytes, but {} are stored", tensor.shape.str(),
                       type.name, *bytes, tensor.bytes));
  }
  if (tensor.offset > file.size || tensor.bytes > file.size - tensor.offset) {
    refuse(fmt::format(
        "lies beyond the end of the file (which has {} bytes; the tensor needs {} from byte {} "
        "on): the file is damaged or was not downloaded completely",
        file.size, tensor.bytes, tensor.offset));
  }
}

CheckpointIndex::CheckpointIndex(std::vector<CheckpointFile> files,
                                 std::vector<StoredTensor> tensors,
                                 std::vector<std::string> warnings)
    : files_(std::move(files)), tensors_(std::move(tensors)), warnings_(std::move(warnings)) {
  for (const StoredTensor& tensor : tensors_) {
    check(tensor.file < files_.size(), "tensor in a file that the index does not list");
    check_tensor(tensor, files_[tensor.file]);
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.file, a.offset, a.bytes, a.name) <
           std::tie(b.file, b.offset, b.bytes, b.name);
  });
  tensors_.shrink_to_fit();
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  auto name = [this](uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                  [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twice != by_name_.end()) {
    const StoredTensor& second = tensors_[*(twice + 1)];
    fail(ErrorKind::refused, "{}: tensor {} is there twice (the other one is in {})",
         printable(files_[second.file].path.string()), printable(second.name),
         printable(files_[tensors_[*twice].file].name));
  }
}

const StoredTensor* CheckpointIndex::find(std::string_view name) const {
  auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  bool found = it != by_name_.end() && tensors_[*it].name == name;
  return found ? &tensors_[*it] : nullptr;
}

namespace {

const AbsentTensors* find_absent(std::span<const AbsentTensors> all, std::string_view name) {
  const auto found = std::ranges::find_if(all, [&](const AbsentTensors& absent) {
    return std::ranges::binary_search(absent.names, name);
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

bool CheckpointIndex::is_named(std::string_view name) const {
  return find(name) != nullptr || find_absent(absent_, name) != nullptr;
}

void CheckpointIndex::refuse_absent(std::string_view name) const {
  const AbsentTensors* absent = find_absent(absent_, name);
  if (absent == nullptr) return;
  if (!absent->file_is_there)
    fail(ErrorKind::refused, "{}: the checkpoint's index names it, but it is not there{}",
         absent->place, absent->hint);
  fail(ErrorKind::refused, "{}: does not hold tensor {} that the checkpoint's index puts there{}",
       absent->place, printable(name), absent->hint);
}

std::string CheckpointIndex::identity() const {
  std::string text;
  for (const CheckpointFile& f : files_) {
    if (!f.ctime_ns && !is_dummy(f)) continue;
    text += fmt::format("{} {} {} {}\n", f.name, f.size, f.mtime_ns, f.inode);
  }
  return text;
}

void CheckpointIndex::refuse_changes() const {
  auto is_shorter = [](const CheckpointFile& f) {
    std::error_code error;
    return std::filesystem::file_size(f.path, error) < f.size && !error;
  };
  auto has_copy = [this](uint32_t file) {
    return std::ranges::find(copies_, file, &FileCopy::of) != copies_.end();
  };
  auto look_at = [&](const CheckpointFile& f, uint32_t of) {
    if (f.ctime_ns && has_changed(f) && !(has_copy(of) && is_shorter(f))) fail_changed(f.path);
  };
  for (uint32_t i = 0; i < files_.size(); ++i) look_at(files_[i], i);
  for (const FileCopy& copy : copies_) look_at(copy.file, copy.of);
}

uint64_t CheckpointIndex::total_bytes() const {
  return std::accumulate(tensors_.begin(), tensors_.end(), uint64_t{0},
                         [](uint64_t sum, const StoredTensor& t) { return sum + t.bytes; });
}

}  // namespace sluice::io
