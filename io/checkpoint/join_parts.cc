#include "io/checkpoint/join_parts.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "io/joined_file.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

// Layers that sum over ranks: of these each rank has some of the inputs.
constexpr std::string_view kCutByColumns[] = {".attention.wo.weight", ".feed_forward.w2.weight"};
// A vector of the model's width, which every file has.
constexpr std::string_view kLastNorm = "norm.weight";
// Multiples of which tensors begin at in the joined file.
constexpr uint64_t kAlignment = 4096;

using Parts = std::vector<const StoredTensor*>;

class Joiner {
 public:
  explicit Joiner(std::vector<TensorFile> parts) : parts_(std::move(parts)) {}

  JoinedParts join();

 private:
  void collect();
  void find_width();
  bool is_cut_by_columns(const StoredTensor& part) const;
  // `whole`: the dimension that is not cut.
  void check_part(const StoredTensor& part, const StoredTensor& first, int whole) const;
  StoredTensor joined(const Parts& parts);
  [[noreturn]] void refuse(const StoredTensor& tensor, const std::string& fault) const {
    fail(ErrorKind::refused, "{}: tensor {}: {}", printable(parts_[tensor.file].file.path.string()),
         printable(tensor.name), fault);
  }

  std::vector<TensorFile> parts_;
  std::map<std::string_view, Parts> by_name_;  // of one file each
  int64_t width_ = 0;
  JoinedFile file_;
  uint64_t end_ = 0;
};

void Joiner::collect() {
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    for (StoredTensor& tensor : parts_[i].tensors) {
      tensor.file = i;
      Parts& all = by_name_[tensor.name];
      if (!all.empty() && all.back()->file == i) refuse(tensor, "is there twice");
      all.push_back(&tensor);
    }
  }
  for (const auto& [name, all] : by_name_) {
    if (all.size() > 1 && all.size() < parts_.size())
      refuse(*all.back(), fmt::format("is in {} of the {} files that the checkpoint is cut into",
                                      all.size(), parts_.size()));
  }
}

void Joiner::find_width() {
  const auto norm = by_name_.find(kLastNorm);
  if (norm == by_name_.end() || norm->second.front()->shape.size() != 1)
    fail(ErrorKind::refused,
         "{}: has parts of tensors, and no vector {} that tells the model's width: join them with "
         "the conversion script of transformers",
         printable(parts_.front().file.path.string()), kLastNorm);
  width_ = norm->second.front()->shape[0];
}

// The embedding has been cut by columns first, and by rows since Llama 3.
bool Joiner::is_cut_by_columns(const StoredTensor& part) const {
  const bool sums = std::ranges::any_of(
      kCutByColumns, [&](std::string_view ending) { return part.name.ends_with(ending); });
  return sums || (part.shape.size() == 2 && part.shape[1] != width_);
}

void Joiner::check_part(const StoredTensor& part, const StoredTensor& first, int whole) const {
  if (part.column_major)
    refuse(part, "is stored with its dimensions exchanged, as no part of a tensor may be");
  if (part.shape.size() == 2 && part.shape[whole] == first.shape[whole] &&
      part.dtype == first.dtype && part.bytes > 0)
    return;
  refuse(part, fmt::format("{} {} does not fit the part in {}", dtype_name(part.dtype),
                           part.shape.str(), printable(parts_[first.file].file.name)));
}

StoredTensor Joiner::joined(const Parts& parts) {
  const StoredTensor& first = *parts.front();
  const bool by_columns = is_cut_by_columns(first);
  JoinedFile::Band band{end_, static_cast<uint64_t>(first.shape[0]), {}};
  int64_t size = 0;  // along the cut
  for (const StoredTensor* part : parts) {
    check_part(*part, first, by_columns ? 0 : 1);
    const auto rows = static_cast<uint64_t>(part->shape[0]);
    const JoinedFile::Strip strip{part->file, part->offset, part->bytes / rows};
    size += part->shape[by_columns ? 1 : 0];
    if (by_columns) {
      band.strips.push_back(strip);
      continue;
    }
    file_.bands.push_back({end_, rows, {strip}});
    end_ = file_.bands.back().end();
  }
  if (by_columns) {
    end_ = band.end();
    file_.bands.push_back(band);
  }
  StoredTensor whole = first;
  whole.shape = by_columns ? Shape{first.shape[0], size} : Shape{size, first.shape[1]};
  whole.file = static_cast<uint32_t>(parts_.size());
  whole.offset = band.begin;
  whole.bytes = end_ - whole.offset;
  end_ = round_up(end_, kAlignment);
  return whole;
}

JoinedParts Joiner::join() {
  collect();
  JoinedParts result;
  for (const TensorFile& part : parts_) {
    for (const StoredTensor& tensor : part.tensors) check_tensor(tensor, part.file);
    result.files.push_back(part.file);
  }
  file_.parts = result.files;
  for (const TensorFile& part : parts_) {
    for (const StoredTensor& tensor : part.tensors) {
      const Parts& all = by_name_.at(tensor.name);
      if (all.front() != &tensor) continue;
      const bool is_whole = all.size() == 1 || tensor.shape.size() < 2;
      if (!is_whole && width_ == 0) find_width();
      result.tensors.push_back(is_whole ? tensor : joined(all));
    }
  }
  if (!file_.bands.empty())
    result.files.push_back(
        joined_file(fmt::format("{} and {} more", parts_.front().file.name, parts_.size() - 1),
                    std::move(file_)));
  return result;
}

}  // namespace

JoinedParts join_parts(std::vector<TensorFile> parts) { return Joiner(std::move(parts)).join(); }

}  // namespace sluice::io
