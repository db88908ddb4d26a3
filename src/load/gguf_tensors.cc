#include "src/load/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/models/gguf/gguf_export.h"
#include "src/plan/bind.h"
#include "src/plan/source_differences.h"

namespace sluice {
namespace {

// A config with the facts of a GGUF file.
class GgufForm : public ModelSource {
 public:
  GgufForm(Json config, SourceFacts facts) : config_(std::move(config)), facts_(std::move(facts)) {}
  std::string_view config_name() const override { return "config.json"; }
  Json config() const override { return config_; }
  std::optional<Json> generation_config() const override { return std::nullopt; }
  SourceFacts facts() const override { return facts_; }
  io::CheckpointIndex index() const override { return {{}, {}, {}}; }
  std::optional<Tokenizer> tokenizer() const override { return std::nullopt; }
  ChatFiles chat_files() const override { return {}; }
  EmbeddingRules embedding_rules() const override { return {}; }

 private:
  Json config_;
  SourceFacts facts_;
};

// An index of names alone.
io::CheckpointIndex index_of(const std::vector<std::string>& names) {
  constexpr int64_t kElements = 1024;  // no fewer than experts
  constexpr uint64_t kBytes = kElements * sizeof(float);
  std::vector<io::StoredTensor> tensors;
  for (const std::string& name : names)
    tensors.push_back({.name = name,
                       .dtype = DType::f32,
                       .shape = Shape{kElements},
                       .offset = tensors.size() * kBytes,
                       .bytes = kBytes});
  io::CheckpointFile file;
  file.size = tensors.size() * kBytes;
  return {{file}, std::move(tensors), {}};
}

// A piece of a file's tensor, and the same of the checkpoint, whose outputs have this order there.
struct Pair {
  const Piece* to = nullptr;
  const Piece* from = nullptr;
  SourceOrder order = {};
};

std::vector<Param*> params_of(const Model& model) {
  std::vector<Param*> params;
  for (Module* unit : model.root->units())
    unit->each_param([&](Param& param) { params.push_back(&param); });
  return params;
}

// The place of a stored matrix's piece.
using PiecePlace = std::tuple<std::string_view, int64_t, int64_t>;
PiecePlace place_of(const Piece& piece) {
  return {piece.source, piece.view.index.value_or(-1), piece.view.first};
}

class Tensors {
 public:
  Tensors(const GgufArchitecture& architecture, Model& of, Model& in_gguf, const ReadPlan& plan,
          const io::CheckpointIndex& index);
  std::vector<GgufTensor> make();

 private:
  void add_pairs(const Param& to, const Param& from);
  void note_rows();
  void add_unused(std::vector<GgufTensor>& tensors) const;
  GgufTensor make(const WantedTensor& wanted, const GgufFileName& name,
                  std::vector<Pair>& pairs) const;
  void take_elements(std::vector<Pair>& pairs, GgufTensor& tensor) const;
  void take_rows(const std::vector<Pair>& pairs, GgufTensor& tensor) const;
  bool take_whole(const std::vector<Pair>& pairs, GgufTensor& tensor) const;
  Shape shape_of(const WantedTensor& wanted, const GgufFileName& name) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const {
    fail(ErrorKind::refused, "{}: {}, which GGUF's {} cannot have", name, why, architecture_.name);
  }

  const GgufArchitecture& architecture_;
  const Model& of_;
  Model& in_gguf_;
  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  SourceDifferences differences_;
  std::map<std::string, std::vector<Pair>, std::less<>> pairs_;  // by the file's tensor
  std::map<PiecePlace, uint32_t> planned_;
  std::map<std::string, const Param*, std::less<>> params_;  // the hub's, by the file's tensor
  std::map<std::string, int64_t, std::less<>> rows_;         // elements of a row, or rows of a head
};

Tensors::Tensors(const GgufArchitecture& architecture, Model& of, Model& in_gguf,
                 const ReadPlan& plan, const io::CheckpointIndex& index)
    : architecture_(architecture), of_(of), in_gguf_(in_gguf), plan_(plan), index_(index) {
  DecoderSpec hub = of.root->spec(), own = in_gguf.root->spec();
  differences_ = source_differences(hub, own);
  const std::vector<Param*> from = params_of(of), to = params_of(in_gguf);
  for (size_t p = 0; p < from.size(); ++p) {
    if (from.size() != to.size() || from[p]->pieces.size() != to[p]->pieces.size())
      refuse(from[p]->path, "its tensors are divided in another way");
    add_pairs(*to[p], *from[p]);
  }
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const TensorPlan& planned = plan.tensors[t];
    if (planned.source == 0)
      planned_.emplace(place_of(plan.params[planned.param].param->pieces[planned.piece]), t);
  }
  note_rows();
}

void Tensors::add_pairs(const Param& to, const Param& from) {
  for (size_t k = 0; k < from.pieces.size(); ++k) {
    const Piece& piece = to.pieces[k];
    if (piece.view.again) continue;
    const auto found = differences_.orders.find({from.path, k});
    const bool has_order = found != differences_.orders.end();
    if (has_order && found->second.kind == SourceOrder::Kind::pairs && from.role == ParamRole::norm)
      refuse(from.path, "it is a norm of rotated heads");
    pairs_[piece.source].push_back(
        {&piece, &from.pieces[k], has_order ? found->second.inverse() : SourceOrder{}});
    params_[piece.source] = &from;
  }
}

// Notes what has more dimensions in a file than here.
void Tensors::note_rows() {
  const DecoderSpec& spec = in_gguf_.root->spec();
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    for (const GgufDivision& divided : gguf_divisions(spec.layer(l)))
      rows_[name_in_layer(divided.name, static_cast<int64_t>(l))] = divided.rows;
  }
}

// The first element or row of a piece, counted over all of a stack.
int64_t begin_of(const Piece& piece, int64_t slab) {
  return piece.view.index.value_or(0) * slab + piece.view.first;
}

// Sorts pieces by their place in a tensor, which they must cover in order.
bool lie_in_order(std::vector<Pair>& pairs, int64_t slab, int64_t all) {
  std::ranges::sort(pairs, {}, [&](const Pair& pair) { return begin_of(*pair.to, slab); });
  int64_t end = 0;
  for (const Pair& pair : pairs) {
    const Piece& to = *pair.to;
    if (to.view.transposed || to.runs() != 1 || begin_of(to, slab) != end) return false;
    end += to.outputs();
  }
  return end == all;
}

void Tensors::take_elements(std::vector<Pair>& pairs, GgufTensor& tensor) const {
  const int64_t slab = tensor.shape[tensor.shape.size() - 1];
  if (!lie_in_order(pairs, slab, tensor.shape.elements().value_or(0)))
    refuse(tensor.name, "its elements are in another order");
  for (const auto& [to, from, order] : pairs) {
    const io::StoredTensor* stored = index_.find(from->source);
    if (stored == nullptr || (from->view.row > 0 && from->view.index))
      refuse(from->source, "it is no vector");
    if (stored->dtype != DType::f64 && !is_float_weight(stored->dtype))
      refuse(from->source, fmt::format("it is a vector of {}", dtype_name(stored->dtype)));
    tensor.elements.push_back({stored, *from, order});
  }
}

bool Tensors::take_whole(const std::vector<Pair>& pairs, GgufTensor& tensor) const {
  const std::string& source = pairs.front().from->source;
  const io::StoredTensor* stored = index_.find(source);
  const bool is_it = std::ranges::all_of(pairs, [&](const Pair& pair) {
    return pair.from->source == source && pair.from->view == pair.to->view &&
           pair.order == SourceOrder{};
  });
  if (!is_it || stored == nullptr || stored->shape != tensor.shape ||
      !is_float_weight(stored->dtype) || stored->column_major)
    return false;
  tensor.whole = stored;
  return true;
}

// Rows that follow one another in the file, from its row `begin` on.
struct PlacedRows {
  int64_t begin = 0;
  GgufRows rows;
};

void place_rows(const Pair& pair, uint32_t planned, int64_t slab, std::vector<PlacedRows>& all) {
  const auto& [to, from, order] = pair;
  const int64_t before = to->view.index.value_or(0) * slab;
  const bool is_tiled = order.kind == SourceOrder::Kind::tiles;
  for (int64_t row = 0; row < to->outputs();) {
    int64_t rows = std::min(to->outputs() - row, to->view.group - row % to->view.group);
    if (is_tiled) rows = std::min(rows, order.run_from(row));
    const int64_t first = is_tiled ? order.source_of(row) : row;
    all.push_back({before + to->stored_output(row),
                   {planned, first, rows, is_tiled ? SourceOrder{} : order}});
    row += rows;
  }
}

void Tensors::take_rows(const std::vector<Pair>& pairs, GgufTensor& tensor) const {
  const Shape& shape = tensor.shape;
  const int64_t slab = shape[shape.size() - 2], all = *shape.elements() / shape[shape.size() - 1];
  std::vector<PlacedRows> placed;
  const bool has_runs = std::ranges::any_of(
      pairs, [&](const Pair& pair) { return pair.to->view.transposed || pair.to->runs() != 1; });
  if (has_runs && take_whole(pairs, tensor)) return;
  for (const Pair& pair : pairs) {
    const auto planned = planned_.find(place_of(*pair.from));
    if (planned == planned_.end()) refuse(pair.from->source, "it is stored in parts");
    const bool is_split = pair.to->runs() != 1 && pair.order != SourceOrder{};
    if (pair.to->view.transposed || is_split) refuse(tensor.name, "its rows are in another order");
    place_rows(pair, planned->second, slab, placed);
  }
  std::ranges::sort(placed, {}, &PlacedRows::begin);
  int64_t end = 0;
  for (const auto& [begin, rows] : placed) {
    if (begin != end) break;
    end += rows.rows;
    tensor.rows.push_back(rows);
  }
  if (end == all) return;
  tensor.rows.clear();
  if (!take_whole(pairs, tensor)) refuse(tensor.name, "its rows are in another order");
}

Shape Tensors::shape_of(const WantedTensor& wanted, const GgufFileName& name) const {
  const Shape& shape = wanted.shape;
  if (name.end == GgufNameEnd::column) return Shape{shape[0], 1};
  const auto row = rows_.find(wanted.name);
  const bool is_divided = name.end == GgufNameEnd::convolution ||
                          name.end == GgufNameEnd::filters || name.end == GgufNameEnd::vector ||
                          name.end == GgufNameEnd::heads;
  if (is_divided && row != rows_.end()) {
    Shape divided{shape[0] / row->second};
    if (name.end == GgufNameEnd::filters) divided.push_back(1);
    divided.push_back(row->second);
    if (shape.size() > 1) divided.push_back(shape[1]);
    return divided;
  }
  // A vector there may be a matrix of one row on the hub.
  io::StoredTensor back{.name = name.name, .shape = Shape{shape[shape.size() - 1]}};
  const Shape vector = back.shape;
  rename_gguf_tensor(architecture_, back);
  return back.shape == shape ? vector : shape;
}

GgufTensor Tensors::make(const WantedTensor& wanted, const GgufFileName& name,
                         std::vector<Pair>& pairs) const {
  GgufTensor tensor{.name = name.name, .shape = wanted.shape};
  const std::string& path = params_.find(wanted.name)->second->path;
  const auto added = differences_.added.find(path);
  if (added != differences_.added.end()) tensor.offset = -added->second;
  tensor.is_rate = differences_.logs.contains(path);
  const auto columns = differences_.columns.find(path);
  if (columns != differences_.columns.end()) tensor.columns = columns->second.inverse();
  if (pairs.front().to->vector) {
    take_elements(pairs, tensor);
  } else {
    take_rows(pairs, tensor);
  }
  tensor.shape = shape_of(wanted, name);
  return tensor;
}

// Returns whether the tensor is of a layer that attends to the keys of another.
bool is_in_sharing_layer(const DecoderSpec& spec, std::string_view name) {
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    bool shares = false;
    each<AttentionSpec>(spec.layer(l), [&](const AttentionSpec& a) {
      shares = shares || a.shared_with.has_value();
    });
    const std::string layer = name_in_layer(spec.layer(l).name, static_cast<int64_t>(l)) + ".";
    if (shares && name.starts_with(layer)) return true;
  }
  return false;
}

// Puts a matrix behind the others of its stack.
void add_slice(GgufTensor matrix, std::vector<GgufTensor>& tensors) {
  const Shape of = matrix.shape;
  auto stack = std::ranges::find(tensors, matrix.name, &GgufTensor::name);
  if (stack == tensors.end()) {
    matrix.shape = Shape{1, of[0], of[1]};
    tensors.push_back(std::move(matrix));
    return;
  }
  stack->shape = Shape{stack->shape[0] + 1, of[0], of[1]};
  std::ranges::copy(matrix.rows, std::back_inserter(stack->rows));
}

// The name without what a wrapper puts before it.
std::string without_wrapper(std::string_view name, const DecoderSpec& of, const DecoderSpec& own) {
  const auto prefix = [](const DecoderSpec& spec) {
    return std::string_view(spec.embedding).substr(0, spec.embedding.rfind('.') + 1);
  };
  const std::string_view before = prefix(of), after = prefix(own);
  if (!name.starts_with(before)) return std::string(name);
  return fmt::format("{}{}", after, name.substr(before.size()));
}

// Keys and values of layers that attend to those of others: nobody needs them, and readers want
// them.
void Tensors::add_unused(std::vector<GgufTensor>& tensors) const {
  const DecoderSpec &of = of_.root->spec(), &own = in_gguf_.root->spec();
  for (const std::string& ignored : plan_.ignored) {
    const io::StoredTensor* stored = index_.find(ignored);
    const std::string hub = without_wrapper(ignored, of, own);
    const std::optional<GgufFileName> name = gguf_name(architecture_, hub);
    if (stored == nullptr || !name || !is_in_sharing_layer(own, hub)) continue;
    if (!is_float_weight(stored->dtype) || stored->column_major) continue;
    GgufTensor tensor{.name = name->name, .shape = stored->shape};
    if (stored->shape.size() == 1) {
      Piece all;
      all.vector = true;
      all.cols = all.view.group = stored->shape[0];
      tensor.elements.push_back({stored, all});
    } else {
      tensor.whole = stored;
    }
    tensors.push_back(std::move(tensor));
  }
}

std::vector<GgufTensor> Tensors::make() {
  std::vector<GgufTensor> tensors;
  for (const WantedTensor& wanted : wanted_tensors(in_gguf_)) {
    const auto pairs = pairs_.find(wanted.name);
    if (pairs == pairs_.end()) refuse(wanted.name, "its pieces are those of others");
    const std::optional<GgufFileName> name = gguf_name(architecture_, wanted.name);
    if (!name) refuse(wanted.name, "it has no name");
    GgufTensor tensor = make(wanted, *name, pairs->second);
    if (name->end == GgufNameEnd::slices) {
      add_slice(std::move(tensor), tensors);
    } else {
      tensors.push_back(std::move(tensor));
    }
  }
  add_unused(tensors);
  return tensors;
}

}  // namespace

Model read_in_gguf(const GgufArchitecture& architecture, Json config) {
  return read_model(GgufForm(std::move(config), architecture.facts));
}

Model model_in_gguf(const GgufArchitecture& architecture, const Model& of) {
  if (!architecture.floats.empty())
    fail(ErrorKind::refused,
         "config.json: a {} cannot be written as GGUF here: some of its weights are keys there",
         of.files.architecture);
  Json config = of.files.config;
  config["architectures"] = {of.files.architecture};
  config["tie_word_embeddings"] = of.root->spec().tie_word_embeddings;
  Model model = read_in_gguf(architecture, std::move(config));
  std::vector<std::string> names =
      possible_names(architecture, static_cast<int64_t>(of.spec.layers.size()));
  if (of.root->spec().tie_word_embeddings) std::erase(names, model.spec.head + ".weight");
  const io::CheckpointIndex index = index_of(names);
  build_root(model, {}, &index);
  return model;
}

std::vector<GgufTensor> gguf_tensors(const GgufArchitecture& architecture, Model& of,
                                     Model& in_gguf, const ReadPlan& plan,
                                     const io::CheckpointIndex& index) {
  return Tensors(architecture, of, in_gguf, plan, index).make();
}

}  // namespace sluice
