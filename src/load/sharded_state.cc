#include "src/load/sharded_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/read_tensors.h"
#include "io/checkpoint/safetensors_writer.h"
#include "src/base/error.h"
#include "src/plan/bind.h"

namespace sluice {
namespace {

struct Part {
  const io::StoredTensor* stored = nullptr;
  const Piece* piece = nullptr;
  uint64_t begin = 0;  // file offset of its matrix

  int64_t first() const {
    return piece->stored_output(piece->vector ? piece->cut.col : piece->cut.row);
  }
  int64_t outputs() const { return piece->vector ? piece->cut.cols : piece->cut.rows; }
};

// A tensor of a rank's file. Parts of a stack have the order of its first dimension, and those of a
// matrix that of its outputs: read_own_tensors() finds them so.
struct RankTensor {
  std::string name;
  std::vector<Part> parts;

  int64_t index(size_t part) const { return parts[part].piece->view.index.value_or(0); }
  Shape shape() const;
};

Shape RankTensor::shape() const {
  const Piece& first = *parts.front().piece;
  Shape shape;
  int64_t outputs = 0;
  for (size_t i = 0; i < parts.size() && index(i) == index(0); ++i) outputs += parts[i].outputs();
  if (first.view.index) shape.push_back(index(parts.size() - 1) + 1);
  if (!first.vector) {
    shape.push_back(first.view.transposed ? first.cut.cols : outputs);
    shape.push_back(first.view.transposed ? outputs : first.cut.cols);
    return shape;
  }
  // Such as [channels, 1, width] of a convolution.
  const Shape& stored = parts.front().stored->shape;
  int64_t row = 1;
  const int inner = first.view.index ? 2 : 1;
  for (int d = inner; d < stored.size(); ++d) row *= stored[d];
  const bool whole = outputs % row == 0;
  shape.push_back(whole ? outputs / row : outputs);
  for (int d = inner; whole && d < stored.size(); ++d) shape.push_back(stored[d]);
  return shape;
}

// The name that vLLM gives to tensors which are stored one after another; empty: they are not.
std::string joined_name(const Param& param) {
  const std::string& path = param.path;
  const size_t dot = path.rfind('.');
  const std::string_view module = std::string_view(path).substr(0, dot);
  const size_t joined = module.ends_with(".qkv_proj")       ? 3
                        : module.ends_with(".gate_up_proj") ? 2
                                                            : 0;
  if (joined != param.pieces.size() || param.expert >= 0) return {};
  for (const Piece& piece : param.pieces)
    if (piece.source == path || piece.view.transposed || piece.runs() > 1 || piece.view.first > 0)
      return {};
  return path;
}

std::vector<RankTensor> tensors_of(const Binding& binding) {
  std::vector<RankTensor> all;
  std::map<std::string, size_t> by_name;
  for (const TensorPlan& t : binding.tensors) {
    const Param& param = *binding.params[t.param];
    const Piece& piece = param.pieces[t.piece];
    if (t.matrix->kept || t.matrix->planes.size() > 1)
      fail(ErrorKind::refused, "{} is stored quantized: only plain weights are cut into files",
           piece.source);
    if (t.stored->column_major)
      fail(ErrorKind::refused, "{} is stored with its dimensions exchanged: save it as safetensors",
           piece.source);
    std::string name = joined_name(param);
    if (name.empty()) name = piece.source;
    const auto [at, is_new] = by_name.try_emplace(name, all.size());
    if (is_new) all.push_back({std::move(name), {}});
    all[at->second].parts.push_back({t.stored, &piece, t.matrix_begin(piece)});
  }
  for (RankTensor& tensor : all) {
    const bool one_source = std::ranges::all_of(
        tensor.parts, [&](const Part& p) { return p.stored == tensor.parts.front().stored; });
    if (!one_source) continue;  // they are in their order
    std::ranges::stable_sort(tensor.parts, {}, [](const Part& p) {
      return std::pair(p.piece->view.index.value_or(0), p.first());
    });
  }
  // So that all are aligned.
  std::ranges::stable_sort(all, std::greater{}, [](const RankTensor& t) {
    return dtype_bytes(t.parts.front().stored->dtype);
  });
  return all;
}

// Copies bytes of the checkpoint's files, of which neighbours are read at once.
class Copier {
 public:
  Copier(const io::CheckpointIndex& index, std::span<std::byte> block, const std::stop_token& stop)
      : block_(block), stop_(stop) {
    for (const io::CheckpointFile& file : index.files()) files_.emplace_back(file);
  }
  void use(io::SafetensorsWriter& out) { out_ = &out; }

  void copy(uint32_t file, uint64_t offset, uint64_t bytes) {
    if (bytes_ > 0 && file == file_ && offset == offset_ + bytes_) {
      bytes_ += bytes;
      return;
    }
    flush();
    file_ = file;
    offset_ = offset;
    bytes_ = bytes;
  }
  void flush() {
    for (; bytes_ > 0; offset_ += block_.size()) {
      if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted");
      const std::span<std::byte> part = block_.first(std::min<uint64_t>(bytes_, block_.size()));
      files_[file_].read(offset_, {reinterpret_cast<char*>(part.data()), part.size()});
      out_->write(part);
      bytes_ -= part.size();
      if (bytes_ == 0) break;
    }
  }

 private:
  std::span<std::byte> block_;
  const std::stop_token& stop_;
  std::vector<io::OpenBytes> files_;
  io::SafetensorsWriter* out_ = nullptr;
  uint32_t file_ = 0;
  uint64_t offset_ = 0, bytes_ = 0;
};

// The stored outputs of a part; where it is transposed, their elements of one input.
void copy_outputs(const Part& part, int64_t input, Copier& copier) {
  const io::StoredTensor& stored = *part.stored;
  const Piece& piece = *part.piece;
  const auto element = static_cast<uint64_t>(dtype_bytes(stored.dtype));
  const int64_t first = piece.vector ? piece.cut.col : piece.cut.row;
  const bool elements = piece.vector || piece.view.transposed;
  for (int64_t o = first; o < first + part.outputs(); ++o) {
    const int64_t output = piece.stored_output(o);
    const int64_t at = piece.view.transposed
                           ? input * stored.shape[stored.shape.size() - 1] + output
                       : piece.vector ? output
                                      : output * piece.cols + piece.cut.col;
    copier.copy(stored.file, part.begin + static_cast<uint64_t>(at) * element,
                elements ? element : static_cast<uint64_t>(piece.cut.cols) * element);
  }
}

void copy_tensor(const RankTensor& tensor, Copier& copier) {
  for (size_t begin = 0, end = 0; begin < tensor.parts.size(); begin = end) {
    while (end < tensor.parts.size() && tensor.index(end) == tensor.index(begin)) ++end;
    const auto parts = std::span(tensor.parts).subspan(begin, end - begin);
    const Piece& piece = *parts.front().piece;
    const bool across = piece.view.transposed && !piece.vector;
    const int64_t inputs = across ? piece.cut.cols : 1;
    for (int64_t i = 0; i < inputs; ++i)
      for (const Part& part : parts) copy_outputs(part, piece.cut.col + i, copier);
  }
  copier.flush();
}

}  // namespace

std::string sharded_state_file(int rank) {
  return fmt::format("model-rank-{}-part-0.safetensors", rank);
}

void write_sharded_state(Model& model, const io::CheckpointIndex& index,
                         const std::filesystem::path& file, std::span<std::byte> block,
                         const std::stop_token& stop) {
  const Binding binding = bind_tensors(model, index);
  const std::vector<RankTensor> tensors = tensors_of(binding);
  const std::span<std::byte> written = block.first(block.size() / 2);
  Copier copier(index, block.subspan(written.size()), stop);
  const auto described = [&](size_t i) {
    return io::TensorToWrite{tensors[i].name, tensors[i].parts.front().stored->dtype,
                             tensors[i].shape()};
  };
  io::SafetensorsWriter out(file, tensors.size(), described, written, stop);
  copier.use(out);
  for (const RankTensor& tensor : tensors) copy_tensor(tensor, copier);
  out.finish();
  index.refuse_changes();
}

}  // namespace sluice
