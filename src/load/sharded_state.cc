#include "src/load/sharded_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/gguf_writer.h"
#include "io/checkpoint/safetensors_writer.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/copier.h"
#include "src/plan/lay_out.h"

namespace sluice {
namespace {

// A piece in one of the tensors that its matrix is stored in. `unit` neighbouring outputs have
// `unit_bytes` bytes that belong together: of each of the tensor's rows, or, where a row is one
// input's or some inputs', of that row.
struct Part {
  const TensorPlan* tensor = nullptr;
  const Piece* piece = nullptr;
  uint64_t begin = 0;      // file offset of its matrix
  bool across = false;     // a row has a part of every output
  uint64_t row_bytes = 0;  // of the tensor
  int64_t first_row = 0;   // across: the rows of this rank's inputs
  int64_t rows = 0;
  int64_t unit = 1;
  uint64_t unit_bytes = 0;
  uint64_t skip = 0;  // of a row before this rank's inputs

  const io::StoredTensor& stored() const { return *tensor->stored; }
  int64_t first() const { return piece->vector ? piece->cut.col : piece->cut.row; }
  int64_t outputs() const { return piece->vector ? piece->cut.cols : piece->cut.rows; }
  int64_t units() const { return ceil_div(outputs(), unit); }
};

// A tensor of a rank's file: parts, or all of one, or numbers that are written in its place. Parts
// of a stack have the order of its first dimension, and those of a matrix that of its outputs:
// read_own_tensors() finds them so.
struct RankTensor {
  std::string name;
  std::vector<Part> parts;
  const io::StoredTensor* whole = nullptr;
  std::vector<int32_t> numbers = {};

  const io::StoredTensor& stored() const {
    return whole != nullptr ? *whole : parts.front().stored();
  }
  int64_t index(size_t part) const { return parts[part].piece->view.index.value_or(0); }
  Shape shape() const;
};

// Returns whether some outputs have several rows of the tensor together.
bool has_rows_of_lines(const Part& part) {
  const StoredPlane& plane = part.tensor->plane();
  return plane.flat == 0 && plane.row_bytes > 0;
}

// The shape of parts of a matrix that is not stored as its elements.
Shape kept_shape(const RankTensor& tensor, int64_t units) {
  const Part& first = tensor.parts.front();
  const Shape& stored = first.stored().shape;
  const StoredType& type = stored_type(first.stored().dtype);
  const auto elements = [&](uint64_t bytes) {
    return static_cast<int64_t>(bytes / static_cast<uint64_t>(type.block_bytes)) *
           type.block_elements;
  };
  if (first.across) return {first.rows, units * elements(first.unit_bytes)};
  Shape shape;
  const int outputs = first.piece->view.index ? 1 : 0;
  if (outputs == 1) shape.push_back(tensor.index(tensor.parts.size() - 1) + 1);
  int64_t inner = 1;
  for (int d = outputs + 1; d < stored.size(); ++d) inner *= stored[d];
  const bool by_rows = inner == elements(first.row_bytes);
  if (!by_rows && has_rows_of_lines(first))
    return {units * elements(first.unit_bytes) / inner, inner};
  if (!by_rows) return {units * elements(first.unit_bytes)};  // one after another
  shape.push_back(units);
  const int64_t kept = elements(first.unit_bytes);
  for (int d = outputs + 1; d < stored.size(); ++d)
    shape.push_back(d == outputs + 1 ? stored[d] * kept / inner : stored[d]);
  return shape;
}

Shape RankTensor::shape() const {
  if (whole != nullptr) return numbers.empty() ? whole->shape : Shape{std::ssize(numbers)};
  const Piece& first = *parts.front().piece;
  Shape shape;
  int64_t outputs = 0, units = 0;
  for (size_t i = 0; i < parts.size() && index(i) == index(0); ++i) {
    outputs += parts[i].outputs();
    units += parts[i].units();
  }
  if (parts.front().tensor->matrix->kept) return kept_shape(*this, units);
  if (first.view.index) shape.push_back(index(parts.size() - 1) + 1);
  if (!first.vector) {
    shape.push_back(first.view.transposed ? first.cut.cols : outputs);
    shape.push_back(first.view.transposed ? outputs : first.cut.cols);
    return shape;
  }
  // Such as [channels, 1, width] of a convolution.
  const Shape& stored = parts.front().stored().shape;
  int64_t row = 1;
  const int inner = first.view.index ? 2 : 1;
  for (int d = inner; d < stored.size(); ++d) row *= stored[d];
  const bool has_rows = outputs % row == 0;
  shape.push_back(has_rows ? outputs / row : outputs);
  for (int d = inner; has_rows && d < stored.size(); ++d) shape.push_back(stored[d]);
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

// Returns whether all pieces of a parameter are elements of one type, or it has none to join. They
// follow one another in the plan; `tensor` is one of them.
bool are_elements_alike(const TensorPlan& tensor, const Param& param) {
  if (tensor.matrix->kept) return false;
  if (joined_name(param).empty()) return true;
  const std::span all(&tensor - tensor.piece, param.pieces.size());
  return std::ranges::all_of(
      all, [&](const TensorPlan& t) { return t.stored->dtype == tensor.stored->dtype; });
}

// Finds a part of elements.
void find_elements(Part& part) {
  const Piece& piece = *part.piece;
  const auto element = static_cast<uint64_t>(dtype_bytes(part.stored().dtype));
  part.across = part.tensor->transposed && !piece.vector;
  part.unit_bytes = element;
  if (part.across) {
    const Shape& shape = part.stored().shape;
    part.row_bytes = static_cast<uint64_t>(shape[shape.size() - 1]) * element;
    part.first_row = piece.cut.col;
    part.rows = piece.cut.cols;
  } else if (piece.vector) {
    part.row_bytes = element;
  } else {
    part.row_bytes = static_cast<uint64_t>(piece.cols) * element;
    part.unit_bytes = static_cast<uint64_t>(piece.cut.cols) * element;
    part.skip = static_cast<uint64_t>(piece.cut.col) * element;
  }
}

// Finds a part of a plane whose rows are inputs. A unit is whole words.
void find_across(Part& part) {
  const StoredPlane& plane = part.tensor->plane();
  const Cut& cut = part.piece->cut;
  const io::StoredTensor& stored = part.stored();
  part.across = true;
  part.row_bytes = stored.bytes / static_cast<uint64_t>(stored.shape[0]);
  part.first_row = cut.col / plane.run_inputs * plane.run_rows;
  part.rows = ceil_div(cut.cols, plane.run_inputs) * plane.run_rows;
  const auto outputs = static_cast<uint64_t>(part.tensor->matrix->outputs);
  const uint64_t words = outputs * static_cast<uint64_t>(dtype_bytes(stored.dtype));
  const uint64_t unit = words / std::gcd(part.row_bytes, words);
  part.unit = static_cast<int64_t>(unit);
  part.unit_bytes = part.row_bytes * unit / outputs;
}

[[noreturn]] void refuse_part(const Part& part) {
  fail(ErrorKind::refused,
       "{} cannot be cut into files for so many ranks, as numbers of it belong to weights of two "
       "ranks; its ranks can read the whole checkpoint",
       part.stored().name);
}

uint64_t element_bytes(const Part& part) {
  return static_cast<uint64_t>(stored_type(part.stored().dtype).block_bytes);
}

// Finds a part of a plane whose rows are outputs, or some outputs.
void find_rows(Part& part) {
  const TensorPlan& t = *part.tensor;
  const StoredPlane& plane = t.plane();
  const Piece& piece = *part.piece;
  part.unit = plane.row_outputs;
  part.row_bytes = part.unit_bytes = stored_row_bytes(t);
  const uint64_t element = element_bytes(part);
  if (plane.slice_outputs > 0 || plane.across > 0) refuse_part(part);
  if (piece.cut.cols == piece.cols || part.row_bytes == element) return;
  if ((plane.flat > 0 && part.unit > 1) || has_rows_of_lines(part)) refuse_part(part);
  const auto all = static_cast<uint64_t>(piece.cols), first = static_cast<uint64_t>(piece.cut.col),
             count = static_cast<uint64_t>(piece.cut.cols);
  if (plane.plane == Plane::codes) {
    part.skip = part.row_bytes * first / all;
    part.unit_bytes = part.row_bytes * count / all;
    return;
  }
  // In memory scales may have fewer columns than in the file, as a cut falls within a block.
  const auto group =
      static_cast<uint64_t>(plane.group > 0 ? plane.group : t.matrix->kept->scale_cols);
  if (first % group != 0 || (count % group != 0 && first + count != all)) refuse_part(part);
  part.skip = first / group * element;
  part.unit_bytes = ceil_div(count, group) * element;
}

// Refuses a part that ends, or begins, within a unit, unless the matrix ends there.
void check_units(const Part& part) {
  if (part.unit == 1) return;
  const Piece& piece = *part.piece;
  const int64_t begin = piece.stored_output(part.first()), end = begin + part.outputs();
  // The last numbers of a tensor may be fewer where they follow one another.
  const bool is_whole = part.tensor->plane().flat == 0 || part.row_bytes == element_bytes(part);
  const bool may_end = end == part.tensor->matrix->outputs && is_whole;
  if (piece.runs() > 1 || begin % part.unit != 0 || (end % part.unit != 0 && !may_end))
    refuse_part(part);
}

Part part_of(const ReadPlan& plan, const TensorPlan& t) {
  Part part{.tensor = &t, .piece = &plan.params[t.param].param->pieces[t.piece]};
  part.begin = t.matrix_begin(*part.piece);
  if (!t.matrix->kept) {
    find_elements(part);
  } else if (t.plane().input_major()) {
    find_across(part);
  } else {
    find_rows(part);
  }
  return part;
}

// The tensors of a rank's file.
class RankTensors {
 public:
  // Parts are joined in every layer or in none.
  RankTensors(const ReadPlan& plan, bool may_join)
      : plan_(plan), joins_(may_join && std::ranges::all_of(plan.tensors, [&](const TensorPlan& t) {
                              return are_elements_alike(t, *plan.params[t.param].param);
                            })) {}

  void add(const TensorPlan& t) {
    const Part part = part_of(plan_, t);
    if (t.stored->column_major)
      fail(ErrorKind::refused, "{} is stored with its dimensions exchanged: save it as safetensors",
           t.stored->name);
    if (t.source == 0) add_small(part);
    if (part.unit == 0) return add_whole(*t.stored);
    check_units(part);
    const std::string joined = joins_ ? joined_name(*plan_.params[t.param].param) : "";
    of(joined.empty() ? t.stored->name : joined).parts.push_back(part);
  }
  void add_whole(const io::StoredTensor& stored) { of(stored.name).whole = &stored; }
  std::vector<RankTensor> take() &&;

 private:
  RankTensor& of(const std::string& name) {
    const auto [at, is_new] = by_name_.try_emplace(name, all_.size());
    if (is_new) all_.push_back({name, {}});
    return all_[at->second];
  }
  // Tensors of a matrix that no plane is. The groups of a rank's inputs count from its first.
  void add_small(const Part& part) {
    const StoredMatrix& matrix = *part.tensor->matrix;
    for (const io::StoredTensor* small : matrix.small) add_whole(*small);
    if (matrix.groups == nullptr) return;
    add_whole(*matrix.groups);
    const Piece& piece = *part.piece;
    if (piece.cut.cols == piece.cols) return;
    std::vector<int32_t> groups(static_cast<size_t>(piece.cut.cols));
    for (size_t i = 0; i < groups.size(); ++i)
      groups[i] = static_cast<int32_t>(static_cast<int64_t>(i) / matrix.kept->scale_cols);
    of(matrix.groups->name).numbers = std::move(groups);
  }

  const ReadPlan& plan_;
  bool joins_;
  std::vector<RankTensor> all_;
  std::map<std::string, size_t> by_name_;
};

std::vector<RankTensor> RankTensors::take() && {
  for (RankTensor& tensor : all_) {
    const bool one_source = std::ranges::all_of(tensor.parts, [&](const Part& p) {
      return p.tensor->stored == tensor.parts.front().tensor->stored;
    });
    if (!one_source) continue;  // they are in their order
    std::ranges::stable_sort(tensor.parts, {}, [](const Part& p) {
      return std::pair(p.piece->view.index.value_or(0), p.piece->stored_output(p.first()));
    });
  }
  return std::move(all_);
}

std::vector<RankTensor> tensors_of(const ReadPlan& plan, const Model& model,
                                   const io::CheckpointIndex& index, bool is_gguf) {
  RankTensors tensors(plan, !is_gguf);
  for (const TensorPlan& t : plan.tensors) tensors.add(t);
  for (const KvScaleNames& names : model.root->kv_scale_names())
    for (const auto* list : {&names.key, &names.value})
      for (const std::string& name : *list)
        if (const io::StoredTensor* scale = index.find(name)) tensors.add_whole(*scale);
  // Some are read with the headers, such as rope factors.
  constexpr uint64_t kSmall = 64 * KiB;
  for (const std::string& name : plan.ignored)
    if (const io::StoredTensor* small = index.find(name); is_gguf && small->bytes <= kSmall)
      tensors.add_whole(*small);
  return std::move(tensors).take();
}

// The units of a part; where rows go across, those of the rank's row `row`.
void copy_units(const Part& part, int64_t row, Copier& copier) {
  for (int64_t o = part.first(); o < part.first() + part.outputs(); o += part.unit) {
    const auto at = static_cast<uint64_t>(part.piece->stored_output(o) / part.unit);
    const uint64_t offset =
        part.across
            ? static_cast<uint64_t>(part.first_row + row) * part.row_bytes + at * part.unit_bytes
            : at * part.row_bytes + part.skip;
    copier.copy(part.stored().file, part.begin + offset, part.unit_bytes);
  }
}

// Returns the tensor as the GGUF file has it; null: it is none of the file's.
const io::StoredTensor* find_in(const io::GgufCheckpoint& gguf, const io::StoredTensor& tensor) {
  const auto found = std::ranges::find_if(gguf.tensors, [&](const io::StoredTensor& t) {
    return t.file == tensor.file && t.offset == tensor.offset;
  });
  return found == gguf.tensors.end() ? nullptr : &*found;
}

// Names a tensor as the GGUF file does, which may have more or fewer dimensions of 1 than the
// tensor that it is part of.
io::TensorToWrite as_in_gguf(io::TensorToWrite part, const io::StoredTensor& whole,
                             const io::GgufCheckpoint& gguf) {
  const io::StoredTensor* in_file = find_in(gguf, whole);
  check(in_file != nullptr, "a tensor of the GGUF file");
  part.name = in_file->name;
  if (in_file->shape == whole.shape) return part;
  if (in_file->shape.size() == 3 && whole.shape.size() == 2) {  // matrices below one another
    const int64_t rows = in_file->shape[1];
    part.shape = {part.shape[0] / rows, rows, part.shape[1]};
    return part;
  }
  std::vector<int64_t> sizes;
  for (int d = 0; d < whole.shape.size() && d < part.shape.size(); ++d)
    if (whole.shape[d] != 1) sizes.push_back(part.shape[d]);
  Shape shape;
  size_t next = 0;
  for (const int64_t size : in_file->shape)
    shape.push_back(size == 1 || next == sizes.size() ? 1 : sizes[next++]);
  check(stored_bytes(part.dtype, shape) == stored_bytes(part.dtype, part.shape),
        "a part has the dimensions of its tensor");
  part.shape = shape;
  return part;
}

void copy_tensor(const RankTensor& tensor, Copier& copier) {
  if (!tensor.numbers.empty()) return copier.write(std::as_bytes(std::span(tensor.numbers)));
  if (tensor.whole != nullptr)
    copier.copy(tensor.whole->file, tensor.whole->offset, tensor.whole->bytes);
  for (size_t begin = 0, end = 0; begin < tensor.parts.size(); begin = end) {
    while (end < tensor.parts.size() && tensor.index(end) == tensor.index(begin)) ++end;
    const auto parts = std::span(tensor.parts).subspan(begin, end - begin);
    const int64_t rows = parts.front().across ? parts.front().rows : 1;
    for (int64_t row = 0; row < rows; ++row)
      for (const Part& part : parts) copy_units(part, row, copier);
  }
  copier.flush();
}

}  // namespace

std::string sharded_state_file(int rank, bool is_gguf) {
  return fmt::format("model-rank-{}-part-0.{}", rank, is_gguf ? "gguf" : "safetensors");
}

void write_sharded_state(Model& model, const io::CheckpointIndex& index,
                         const io::GgufCheckpoint* gguf, const std::filesystem::path& file,
                         std::span<std::byte> block, const std::stop_token& stop) {
  const ReadPlan plan = lay_out(model, index, {}, Origin::checkpoint);
  std::vector<RankTensor> tensors = tensors_of(plan, model, index, gguf != nullptr);
  if (gguf != nullptr)  // some are numbers of the metadata, which each file has
    std::erase_if(tensors,
                  [&](const RankTensor& t) { return find_in(*gguf, t.stored()) == nullptr; });
  const std::span<std::byte> written = block.first(block.size() / 2);
  Copier copier(index, block.subspan(written.size()), stop);
  const auto described = [&](size_t i) {
    const io::TensorToWrite tensor{tensors[i].name, tensors[i].stored().dtype, tensors[i].shape()};
    return gguf == nullptr ? tensor : as_in_gguf(tensor, tensors[i].stored(), *gguf);
  };
  const auto write_all = [&](auto& out) {
    copier.use([&](std::span<const std::byte> bytes) { out.write(bytes); });
    for (const RankTensor& tensor : tensors) copy_tensor(tensor, copier);
    out.finish();
  };
  if (gguf != nullptr) {
    io::GgufWriter out(file, gguf->header, model.files.config.dump(), tensors.size(), described,
                       written, stop);
    write_all(out);
  } else {
    // So that all are aligned.
    std::ranges::stable_sort(tensors, std::greater{},
                             [](const RankTensor& t) { return dtype_bytes(t.stored().dtype); });
    io::SafetensorsWriter out(file, tensors.size(), described, written, stop);
    write_all(out);
  }
  index.refuse_changes();
}

}  // namespace sluice
