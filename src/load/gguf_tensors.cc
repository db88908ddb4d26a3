#include "src/load/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/models/gguf/gguf_export.h"
#include "src/plan/bind.h"

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

// A piece of a file's tensor, and the same of the checkpoint.
struct Pair {
  const Piece* to = nullptr;
  const Piece* from = nullptr;
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
  GgufTensor make(const WantedTensor& wanted, std::vector<Pair>& pairs) const;
  void take_elements(std::vector<Pair>& pairs, GgufTensor& tensor) const;
  void take_rows(std::vector<Pair>& pairs, GgufTensor& tensor) const;
  bool take_whole(const std::vector<Pair>& pairs, GgufTensor& tensor) const;
  void note_norms();
  void note_rotated();
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const {
    fail(ErrorKind::refused, "{}: {}, which GGUF's {} cannot have", name, why, architecture_.name);
  }

  const GgufArchitecture& architecture_;
  Model& of_;
  Model& in_gguf_;
  const io::CheckpointIndex& index_;
  std::map<std::string, std::vector<Pair>, std::less<>> pairs_;  // by the file's tensor
  std::map<PiecePlace, uint32_t> planned_;
  struct Heads {
    int64_t size = 0;
    int64_t turned = 0;
  };
  std::map<std::string, Heads, std::less<>> rotated_;  // whose pairs become neighbours
  std::map<std::string, float, std::less<>> offsets_;  // of norms
};

Tensors::Tensors(const GgufArchitecture& architecture, Model& of, Model& in_gguf,
                 const ReadPlan& plan, const io::CheckpointIndex& index)
    : architecture_(architecture), of_(of), in_gguf_(in_gguf), index_(index) {
  const std::vector<Param*> from = params_of(of), to = params_of(in_gguf);
  for (size_t p = 0; p < from.size(); ++p) {
    if (from.size() != to.size() || from[p]->pieces.size() != to[p]->pieces.size())
      refuse(from[p]->path, "its tensors are divided in another way");
    for (size_t k = 0; k < from[p]->pieces.size(); ++k) {
      const Piece& piece = to[p]->pieces[k];
      if (!piece.view.again) pairs_[piece.source].push_back({&piece, &from[p]->pieces[k]});
    }
  }
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const TensorPlan& planned = plan.tensors[t];
    if (planned.source == 0)
      planned_.emplace(place_of(plan.params[planned.param].param->pieces[planned.piece]), t);
  }
  note_norms();
  note_rotated();
}

// Weights that stand for 1 + w are stored so.
void Tensors::note_norms() {
  if (!architecture_.facts.norms_have_one) return;
  const DecoderSpec &before = of_.root->spec(), &spec = in_gguf_.root->spec();
  const auto note = [&](const NormSpec& norm, const NormSpec& own, int64_t layer) {
    if (norm.exists())
      offsets_[name_in_layer(norm.name, layer) + ".weight"] = own.params.weight_offset;
  };
  note(spec.norm, before.norm, 0);
  note(spec.embedding_norm, before.embedding_norm, 0);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    std::vector<const NormSpec*> stored;
    each<NormSpec>(before.layer(l), [&](const NormSpec& norm) { stored.push_back(&norm); });
    size_t at = 0;
    each<NormSpec>(spec.layer(l), [&](const NormSpec& norm) {
      note(norm, *stored.at(at++), static_cast<int64_t>(l));
    });
  }
}

void Tensors::note_rotated() {
  if (!architecture_.facts.interleaved_rope) return;
  const DecoderSpec &before = of_.root->spec(), &spec = in_gguf_.root->spec();
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    std::vector<const AttentionSpec*> stored;
    each<AttentionSpec>(before.layer(l), [&](const AttentionSpec& a) { stored.push_back(&a); });
    size_t at = 0;
    each<AttentionSpec>(spec.layer(l), [&](const AttentionSpec& a) {
      const AttentionSpec& own = *stored.at(at++);
      if (!a.rope || a.rope == own.rope) return;
      if (a.q_norm.exists()) refuse(a.q_norm.name, "it is a norm of rotated heads");
      if (a.qkv.parts[0].source == a.qkv.parts[1].source)
        refuse(a.qkv.name, "it has queries and keys in one tensor");
      for (const size_t part : {0, 1}) {
        const std::string name = name_in_layer(a.qkv.parts[part].source, static_cast<int64_t>(l));
        const Heads heads{a.head_dim, spec.ropes[a.angles].dim};
        rotated_[name + ".weight"] = rotated_[name + ".bias"] = heads;
      }
    });
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
  for (const auto& [to, from] : pairs) {
    if (to->view.transposed || to->runs() != 1 || begin_of(*to, slab) != end) return false;
    end += to->outputs();
  }
  return end == all;
}

void Tensors::take_elements(std::vector<Pair>& pairs, GgufTensor& tensor) const {
  const int64_t slab = tensor.shape[tensor.shape.size() - 1];
  if (!lie_in_order(pairs, slab, tensor.shape.elements().value_or(0)))
    refuse(tensor.name, "its elements are in another order");
  for (const auto& [to, from] : pairs) {
    const io::StoredTensor* stored = index_.find(from->source);
    if (stored == nullptr || from->view.row > 0) refuse(from->source, "it is no vector");
    if (stored->dtype != DType::f64 && !is_float_weight(stored->dtype))
      refuse(from->source, fmt::format("it is a vector of {}", dtype_name(stored->dtype)));
    tensor.elements.push_back({stored, *from});
  }
}

bool Tensors::take_whole(const std::vector<Pair>& pairs, GgufTensor& tensor) const {
  const std::string& source = pairs.front().from->source;
  const io::StoredTensor* stored = index_.find(source);
  if (stored == nullptr || stored->shape != tensor.shape || !is_float_weight(stored->dtype) ||
      stored->column_major)
    return false;
  tensor.whole = stored;
  return std::ranges::all_of(pairs, [&](const Pair& pair) {
    return pair.from->source == source && pair.from->view == pair.to->view;
  });
}

void Tensors::take_rows(std::vector<Pair>& pairs, GgufTensor& tensor) const {
  const Shape& shape = tensor.shape;
  const int64_t cols = shape[shape.size() - 1], all = *shape.elements() / cols;
  if (!lie_in_order(pairs, shape[shape.size() - 2], all)) {
    if (!take_whole(pairs, tensor)) refuse(tensor.name, "its rows are in another order");
    return;
  }
  for (const auto& [to, from] : pairs) {
    const auto planned = planned_.find(place_of(*from));
    if (planned == planned_.end()) refuse(from->source, "it is stored in parts");
    tensor.rows.push_back(planned->second);
  }
}

GgufTensor Tensors::make(const WantedTensor& wanted, std::vector<Pair>& pairs) const {
  const std::optional<std::string> name = gguf_name(architecture_, wanted.name);
  if (!name) refuse(wanted.name, "it has no name");
  GgufTensor tensor{.name = *name, .shape = wanted.shape};
  const auto rotated = rotated_.find(wanted.name);
  if (rotated != rotated_.end())
    std::tie(tensor.head, tensor.turned) = std::tie(rotated->second.size, rotated->second.turned);
  const auto offset = offsets_.find(wanted.name);
  if (offset != offsets_.end()) tensor.offset = offset->second;
  if (pairs.front().to->vector) {
    take_elements(pairs, tensor);
  } else {
    take_rows(pairs, tensor);
  }
  // A vector there may be a matrix of one row on the hub.
  io::StoredTensor back{.name = *name, .shape = Shape{tensor.shape[tensor.shape.size() - 1]}};
  const Shape vector = back.shape;
  rename_gguf_tensor(architecture_, back);
  if (back.shape == tensor.shape) tensor.shape = vector;
  return tensor;
}

std::vector<GgufTensor> Tensors::make() {
  std::vector<GgufTensor> tensors;
  for (const WantedTensor& wanted : wanted_tensors(in_gguf_)) {
    const auto pairs = pairs_.find(wanted.name);
    if (pairs == pairs_.end()) refuse(wanted.name, "its pieces are those of others");
    tensors.push_back(make(wanted, pairs->second));
  }
  return tensors;
}

}  // namespace

Model read_in_gguf(const GgufArchitecture& architecture, Json config) {
  return read_model(GgufForm(std::move(config), architecture.facts));
}

Model model_in_gguf(const GgufArchitecture& architecture, const Model& of) {
  const SourceFacts& facts = architecture.facts;
  bool has_latents = false;
  each<MlaSpec>(of.spec, [&](const MlaSpec&) { has_latents = true; });
  if (facts.negative_rates || facts.tiled_heads || has_latents || !architecture.floats.empty())
    fail(ErrorKind::refused,
         "config.json: a {} cannot be written as GGUF here: its weights are other numbers there",
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
