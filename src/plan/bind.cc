#include "src/plan/bind.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "src/base/error.h"
#include "src/formats/formats.h"
#include "src/plan/name_pattern.h"

namespace sluice {
namespace {

constexpr size_t kMostFaultsShown = 12;
constexpr std::string_view kWithoutHead =
    "; without it a model makes no text: for embeddings use `sluice serve` and /v1/embeddings";

// A stored tensor and the pieces that are made of it.
struct Claims {
  std::string_view source;
  const io::StoredTensor* stored = nullptr;
  const StoredFormat* format = nullptr;  // null: the checkpoint lacks it
  std::vector<uint32_t> tensors;         // of the binding, in the order of the module tree
};

// The claims on all sources, in the order of their first pieces. A checkpoint may have a hundred
// thousand tensors, so its tensors are found by their place in the index, not by name.
class AllClaims {
 public:
  explicit AllClaims(const io::CheckpointIndex& index)
      : index_(index), place_of_(index.tensors().size(), kNone) {}

  // `stored`: null where the checkpoint lacks the source.
  Claims& of(const std::string& source, const io::StoredTensor* stored) {
    uint32_t& place =
        stored != nullptr ? place_of(*stored) : missing_.try_emplace(source, kNone).first->second;
    if (place == kNone) {
      place = static_cast<uint32_t>(all_.size());
      all_.push_back({source, stored, nullptr, {}});
    }
    return all_[place];
  }
  bool has(const io::StoredTensor& stored) { return place_of(stored) != kNone; }
  std::vector<Claims>& all() { return all_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t& place_of(const io::StoredTensor& stored) {
    return place_of_[static_cast<size_t>(&stored - index_.tensors().data())];
  }

  const io::CheckpointIndex& index_;
  std::vector<Claims> all_;
  std::vector<uint32_t> place_of_;                          // in all_, of each tensor of the index
  std::unordered_map<std::string_view, uint32_t> missing_;  // and of names that it lacks
};

// The shape that the pieces of a tensor give it together; `stack`: matrices, or vectors, of its
// first dimension. 0: it has no such dimension.
struct Expected {
  int64_t stack = 0;
  int64_t outputs = 0;
  Shape shape;
};

// The tensor's last dimensions, or all.
Shape matrix_shape(const Piece& piece, int64_t outputs) {
  const int64_t row = piece.view.row;
  if (piece.vector) return row > 0 ? Shape{outputs / row, row} : Shape{outputs};
  return piece.view.transposed ? Shape{piece.cols, outputs} : Shape{outputs, piece.cols};
}

const Piece& piece_of(const Binding& binding, uint32_t tensor) {
  const TensorPlan& t = binding.tensors[tensor];
  return binding.params[t.param]->pieces[t.piece];
}

// One past the last stored output of a piece.
int64_t outputs_end(const Piece& piece) {
  if (piece.outputs() == 0) return 0;
  return std::max(piece.stored_output(piece.outputs() - 1) + 1, piece.view.stored);
}

Expected expected_of(const Binding& binding, const Claims& claims) {
  Expected expected;
  const Piece& first = piece_of(binding, claims.tensors.front());
  for (uint32_t t : claims.tensors) {
    const Piece& piece = piece_of(binding, t);
    if (piece.view.index)
      expected.stack = std::max({expected.stack, *piece.view.index + 1, piece.view.stack});
    expected.outputs = std::max(expected.outputs, outputs_end(piece));
  }
  if (expected.stack > 0) expected.shape.push_back(expected.stack);
  for (int64_t size : matrix_shape(first, expected.outputs)) expected.shape.push_back(size);
  return expected;
}

std::string missing(const Binding& binding, const Claims& claims) {
  const Param& param = *binding.params[binding.tensors[claims.tensors.front()].param];
  return fmt::format("{} is missing (expected {}{})", claims.source,
                     expected_of(binding, claims).shape.str(),
                     param.role == ParamRole::head ? kWithoutHead : "");
}

// Finds where the parts of a matrix begin.
void set_steps(const Binding& binding, const Claims& claims, WantedMatrix& wanted) {
  for (uint32_t t : claims.tensors) {
    const Piece& piece = piece_of(binding, t);
    if (piece.vector) return;
    const auto& [row, rows, col, cols] = piece.cut;
    wanted.output_step = std::gcd(wanted.output_step, piece.stored_output(row));
    if (piece.runs() > 1)
      wanted.output_step =
          std::gcd(wanted.output_step, std::gcd(piece.view.group, piece.view.stride));
    if (cols < piece.cols) wanted.input_step = std::gcd(wanted.input_step, std::gcd(col, cols));
  }
}

// Returns whether all outputs of a piece are in one slice of their tensor.
bool is_in_slice(const Piece& piece, int64_t slice) {
  const int64_t first = piece.stored_output(piece.cut.row);
  return first / slice == piece.stored_output(piece.cut.row + piece.cut.rows - 1) / slice;
}
bool has_whole_panels(const Piece& piece) {
  return piece.offset % kPanelRows == 0 &&
         (piece.runs() == 1 || piece.view.group % kPanelRows == 0);
}

// Empty where the pieces of codes that share bytes are whole panels of one slice each.
std::string slice_fault(const Binding& binding, const Claims& claims, const StoredPlane& codes) {
  const int64_t slice = codes.slice_outputs;
  for (uint32_t t : claims.tensors) {
    const Piece& piece = piece_of(binding, t);
    if (slice == 0 || piece.cut.rows == 0) continue;
    const bool cuts_runs = piece.runs() > 1 && slice % piece.view.stride != 0;
    if (!has_whole_panels(piece) || slice % kPanelRows != 0 || cuts_runs)
      return fmt::format(
          "{} has codes of outputs in a byte that are {} apart, and matrices are parts of it: all "
          "must be multiples of {}",
          claims.source, slice, kPanelRows);
    if (!is_in_slice(piece, slice))
      return fmt::format(
          "{} cannot be divided among so many ranks, as its bytes have codes of outputs {} apart; "
          "run it with --pipeline-parallel-size, which divides the layers",
          claims.source, slice);
  }
  return {};
}

// Returns whether the tensors of a matrix fit its pieces.
bool describe(Binding& binding, const Claims& claims, const ModelFiles& files,
              StoredFormats& formats, std::vector<std::string>& faults) {
  const Expected expected = expected_of(binding, claims);
  WantedMatrix wanted{piece_of(binding, claims.tensors.front()), expected.outputs, expected.shape,
                      files.config_name};
  set_steps(binding, claims, wanted);
  const auto matrix = formats.describe({claims.format, claims.stored}, wanted, faults);
  if (matrix == nullptr) return false;
  for (const StoredPlane& plane : matrix->planes) {
    if (plane.tensor == nullptr || !plane.tensor->column_major) continue;
    faults.push_back(fmt::format(
        "{} is stored with its dimensions exchanged, as only matrices of plain elements may be",
        plane.tensor->name));
    return false;
  }
  if (std::string fault = slice_fault(binding, claims, matrix->planes.front()); !fault.empty()) {
    faults.push_back(std::move(fault));
    return false;
  }
  for (uint32_t t : claims.tensors) {
    TensorPlan& tensor = binding.tensors[t];
    tensor.matrix = matrix;
    tensor.matrices = static_cast<uint32_t>(std::max<int64_t>(expected.stack, 1));
    if (tensor.plane().tensor != nullptr) tensor.stored = tensor.plane().tensor;
  }
  return true;
}

// Stored outputs [begin, end) that a piece has.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t tensor = 0;
};

// Returns the parts of one matrix's `outputs` that the pieces `claimed` cover. If all pieces repeat
// with the same period, one period is returned.
std::vector<Interval> intervals_of(const Binding& binding, std::span<const uint32_t> claimed,
                                   int64_t& outputs) {
  const Piece& first = piece_of(binding, claimed.front());
  const int64_t stride = first.view.stride, runs = first.runs();
  bool alike = outputs == stride * runs;
  for (uint32_t t : claimed) {
    const Piece& p = piece_of(binding, t);
    alike = alike && p.view.stride == stride && p.runs() == runs &&
            p.view.first + p.view.group <= stride;
  }
  if (alike) outputs = stride;
  std::vector<Interval> intervals;
  for (uint32_t t : claimed) {
    const Piece& p = piece_of(binding, t);
    for (int64_t run = 0; run < (alike ? 1 : p.runs()); ++run) {
      int64_t begin = p.view.first + run * p.view.stride;
      intervals.push_back({begin, begin + p.view.group, t});
    }
  }
  std::ranges::sort(intervals, {}, &Interval::begin);
  return intervals;
}

// Empty when the pieces of one matrix, or vector, have each of its outputs once, as far as they
// have any.
std::string cover_fault(const Binding& binding, const Claims& claims,
                        std::span<const uint32_t> claimed, int64_t outputs,
                        const ModelFiles& files) {
  auto path = [&](uint32_t t) { return binding.params[binding.tensors[t].param]->path; };
  std::optional<int64_t> index = piece_of(binding, claimed.front()).view.index;
  std::string name =
      index ? fmt::format("{}[{}]", claims.source, *index) : std::string(claims.source);
  Interval before{0, 0, claimed.front()};
  std::vector<Interval> intervals = intervals_of(binding, claimed, outputs);
  const bool has_more = std::ranges::any_of(
      claimed, [&](uint32_t t) { return piece_of(binding, t).view.stored > 0; });
  if (!has_more) intervals.push_back({outputs, outputs, claimed.front()});
  for (const Interval& next : intervals) {
    if (piece_of(binding, next.tensor).view.again) continue;
    if (next.begin < before.end)
      return fmt::format("{} is claimed by both {} and {}", name, path(before.tensor),
                         path(next.tensor));
    if (next.begin > before.end)
      return fmt::format("outputs {} to {} of {} are not part of a {} with this {}", before.end,
                         next.begin - 1, name, files.architecture, files.config_name);
    before = next;
  }
  return {};
}

// Every fault of a tensor's pieces together, once its shape is right.
void add_cover_faults(const Binding& binding, Claims& claims, const ModelFiles& files,
                      std::vector<std::string>& faults) {
  auto form = [&](uint32_t t) {
    const Piece& p = piece_of(binding, t);
    return std::tuple(p.vector, p.vector ? 0 : p.cols, p.view.transposed, p.view.index.has_value());
  };
  auto index = [&](uint32_t t) { return piece_of(binding, t).view.index.value_or(0); };
  auto path = [&](uint32_t t) { return binding.params[binding.tensors[t].param]->path; };
  std::vector<uint32_t>& all = claims.tensors;
  for (uint32_t t : all) {
    if (form(t) == form(all.front())) continue;
    faults.push_back(
        fmt::format("{} is claimed by both {} and {}", claims.source, path(all.front()), path(t)));
    return;
  }
  const Expected expected = expected_of(binding, claims);
  std::ranges::stable_sort(all, {}, index);
  int64_t next = 0;
  for (auto at = all.begin(); at != all.end();) {
    auto end = std::find_if(at, all.end(), [&](uint32_t t) { return index(t) != index(*at); });
    if (index(*at) != next && piece_of(binding, *at).view.stack == 0)
      faults.push_back(fmt::format("{}[{}] is not part of a {} with this {}", claims.source, next,
                                   files.architecture, files.config_name));
    next = index(*at) + 1;
    std::string fault = cover_fault(binding, claims, {at, end}, expected.outputs, files);
    if (!fault.empty()) faults.push_back(std::move(fault));
    at = end;
  }
}

std::string_view module_of(std::string_view tensor) {
  return tensor.substr(0, std::min(tensor.rfind('.'), tensor.size()));
}

// Names of tensors that may be there or not.
std::unordered_set<std::string> kv_scale_names(const CausalLM& root) {
  std::unordered_set<std::string> all;
  for (const KvScaleNames& names : root.kv_scale_names()) {
    all.insert(names.key.begin(), names.key.end());
    all.insert(names.value.begin(), names.value.end());
  }
  return all;
}

// Sorts the tensors that no piece claims: scales of the KV cache, tensors to be ignored, and
// faults.
void add_unclaimed(const Model& model, const io::CheckpointIndex& index, const auto& is_claimed,
                   const StoredFormats& formats, Binding& binding,
                   std::vector<std::string>& faults) {
  const std::unordered_set<std::string> kv_scales = kv_scale_names(*model.root);
  const bool kv_scales_used = !model.root->kv_scales().empty();
  for (const io::StoredTensor& t : index.tensors()) {
    if (is_claimed(t)) continue;
    if (kv_scales_used && kv_scales.contains(t.name)) {
      binding.kv_scales.push_back(&t);
      continue;
    }
    if (is_elsewhere(model.elsewhere, t.name)) continue;
    // A tensor without elements, or one that only a shard's header lists, is no part of the model.
    bool known =
        t.bytes == 0 || !t.listed || kv_scales.contains(t.name) ||
        std::ranges::any_of(model.ignorable, [&](const auto& p) { return matches(p, t.name); }) ||
        formats.ignores(t);
    if (known) {
      binding.ignored.push_back(t.name);
    } else {
      faults.push_back(fmt::format("{} is not part of a {} with this {}", t.name,
                                   model.files.architecture, model.files.config_name));
    }
  }
}

}  // namespace

void refuse(std::string_view what, const std::vector<std::string>& faults) {
  size_t shown = std::min(faults.size(), kMostFaultsShown);
  std::string list =
      fmt::format("{}", fmt::join(faults.begin(), faults.begin() + static_cast<long>(shown), "; "));
  if (shown < faults.size()) list += fmt::format("; and {} more", faults.size() - shown);
  fail(ErrorKind::refused, "{}: {}", what, list);
}

namespace {

// Makes the pieces views of their tensors as `index` has them: transposed or not.
void follow_stored_order(CausalLM& root, const io::CheckpointIndex& index) {
  root.each_param([&](Param& param) {
    for (Piece& piece : param.pieces) {
      const bool transposed = lies_transposed(piece, index);
      piece.inverted = piece.inverted != (transposed != piece.view.transposed);
      piece.view.transposed = transposed;
    }
  });
}

// The outputs of a piece that follow one another both in it and in a slice of the tensor, from
// `row` on.
int64_t rows_together(const Piece& piece, int64_t row, int64_t slice) {
  const int64_t of_run = piece.view.group - row % piece.view.group;
  return std::min({of_run, slice - piece.stored_output(row) % slice, piece.rows - row});
}

// Replaces a piece by its parts in the slices of its tensor (see StoredPlane). A rank's part of a
// piece stays one.
void split_at_slices(Param& param, uint32_t at, int64_t slice) {
  const Piece piece = param.pieces[at];
  if (piece.cut.rows < piece.rows || is_in_slice(piece, slice) || !has_whole_panels(piece)) return;
  std::vector<Piece> parts;
  for (int64_t row = 0; row < piece.rows; row += parts.back().rows) {
    Piece& part = parts.emplace_back(piece);
    part.rows = part.cut.rows = rows_together(piece, row, slice);
    part.view.first = piece.stored_output(row);
    part.view.group = part.view.stride = part.rows;
    part.offset += row;
    if (!part.shard.divides_inputs()) part.shard = Shard::whole();
  }
  const auto place = param.pieces.erase(param.pieces.begin() + at);
  param.pieces.insert(place, parts.begin(), parts.end());
}

}  // namespace

std::vector<WantedTensor> wanted_tensors(Model& model) {
  const io::CheckpointIndex none({}, {}, {});
  Binding binding;
  AllClaims claims(none);
  for (Module* unit : model.root->units()) {
    unit->each_param([&](Param& param) {
      const auto p = static_cast<uint32_t>(binding.params.size());
      binding.params.push_back(&param);
      for (uint32_t i = 0; i < param.pieces.size(); ++i) {
        claims.of(param.pieces[i].source, nullptr)
            .tensors.push_back(static_cast<uint32_t>(binding.tensors.size()));
        binding.tensors.push_back({nullptr, p, i});
      }
    });
  }
  std::vector<WantedTensor> wanted;
  for (const Claims& c : claims.all())
    wanted.push_back({std::string(c.source), expected_of(binding, c).shape});
  return wanted;
}

bool lies_transposed(const Piece& piece, const io::CheckpointIndex& index) {
  const io::StoredTensor* stored = index.find(piece.source);
  const bool column_major = stored != nullptr && stored->column_major && !piece.vector;
  return piece.view.transposed != (column_major != piece.inverted);
}

bool may_be_input_major(const Model& model, const io::CheckpointIndex& index) {
  bool transposed = false;
  model.root->each_param([&](const Param& param) {
    transposed = transposed || std::ranges::any_of(param.pieces, [&](const Piece& piece) {
                   return lies_transposed(piece, index);
                 });
  });
  return transposed || StoredFormats(model.files.config, index).are_input_major();
}

Binding bind_tensors(Model& model, const io::CheckpointIndex& index) {
  if (index.tensors().empty()) fail(ErrorKind::refused, "the checkpoint holds no tensors");
  follow_stored_order(*model.root, index);
  Binding binding;
  binding.tensors.reserve(index.tensors().size());
  std::vector<std::string> faults;
  AllClaims claims(index);
  StoredFormats formats(model.files.config, index);
  auto units = model.root->units();
  for (uint32_t u = 0; u < units.size(); ++u) {
    units[u]->each_param([&](Param& param) {
      auto p = static_cast<uint32_t>(binding.params.size());
      binding.params.push_back(&param);
      binding.param_units.push_back(u);
      for (uint32_t i = 0; i < param.pieces.size(); ++i) {
        const StoredFormats::Found found = formats.find(param.pieces[i]);
        const int64_t slice =
            found.codes == nullptr ? 0 : found.format->slice_outputs(param.pieces[i], *found.codes);
        if (slice > 0) split_at_slices(param, i, slice);
        const Piece& piece = param.pieces[i];
        Claims& of_source =
            claims.of(found.codes != nullptr ? found.codes->name : piece.source, found.codes);
        of_source.format = found.format;
        of_source.tensors.push_back(static_cast<uint32_t>(binding.tensors.size()));
        binding.tensors.push_back({of_source.stored, p, i});
      }
    });
  }
  std::unordered_set<std::string_view> faulty;  // modules
  for (Claims& c : claims.all()) {
    if (c.stored == nullptr) {
      formats.refuse_absent(std::string(c.source));
      faults.push_back(missing(binding, c));
    } else if (describe(binding, c, model.files, formats, faults)) {
      add_cover_faults(binding, c, model.files, faults);
    } else {
      faulty.insert(module_of(c.source));
    }
  }
  // Other tensors of a module whose matrix has a fault are not clear.
  auto is_claimed = [&](const io::StoredTensor& t) {
    return claims.has(t) || formats.claims(t.name) || faulty.contains(module_of(t.name));
  };
  add_unclaimed(model, index, is_claimed, formats, binding, faults);
  if (!faults.empty()) refuse("the checkpoint does not fit " + model.files.config_name, faults);
  formats.finish();
  return binding;
}

}  // namespace sluice
