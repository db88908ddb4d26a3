#include "src/models/pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

// The sizes of the parts that stages divide [bytes].
struct Bytes {
  uint64_t embedding = 0;
  uint64_t head = 0;
  std::vector<uint64_t> layers;
};

std::string layer_path(const DecoderSpec& spec, size_t layer) {
  return name_in_layer(spec.layer(layer).name, static_cast<int64_t>(layer));
}

Bytes bytes_of(const DecoderSpec& spec, const io::CheckpointIndex* index) {
  Bytes bytes;
  bytes.layers.assign(spec.layers.size(), index == nullptr ? 1 : 0);
  if (index == nullptr) return bytes;
  std::unordered_map<std::string, uint64_t*> places;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    places.emplace(layer_path(spec, i), &bytes.layers[i]);
  const std::string& table = spec.embedding_from_head ? spec.head : spec.embedding;
  places.emplace(table, &bytes.embedding);
  if (spec.layer_inputs) places.emplace(spec.layer_inputs->table, &bytes.embedding);
  if (spec.has_head && !spec.tie_word_embeddings) places.emplace(spec.head, &bytes.head);
  for (const io::StoredTensor& tensor : index->tensors()) {
    for (size_t end = tensor.name.find('.'); end != std::string::npos;
         end = tensor.name.find('.', end + 1)) {
      const auto found = places.find(tensor.name.substr(0, end));
      if (found == places.end()) continue;
      *found->second += tensor.bytes;
      break;
    }
  }
  if (spec.has_head && spec.tie_word_embeddings) bytes.head = bytes.embedding;
  return bytes;
}

// Returns whether a stage may begin with each layer: none of those from it on attends to keys of
// one before it.
std::vector<bool> borders(const DecoderSpec& spec) {
  std::vector<size_t> layer_of_mixer;
  std::vector<bool> may_begin(spec.layers.size(), true);
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    for (const MixerBranch& branch : spec.layer(layer).mixers) {
      layer_of_mixer.push_back(layer);
      const auto* attention = std::get_if<AttentionSpec>(&branch.mixer);
      if (attention == nullptr || !attention->shared_with) continue;
      const size_t first = layer_of_mixer.at(*attention->shared_with);
      std::fill(may_begin.begin() + static_cast<long>(first) + 1,
                may_begin.begin() + static_cast<long>(layer) + 1, false);
    }
  }
  return may_begin;
}

// Budgets in parts of the largest. Ranks whose free memory differs by little count the same, so
// that each run divides the layers as the one before did, whose spill caches it finds.
std::vector<double> rounded(const std::vector<uint64_t>& budgets) {
  constexpr double kParts = 16;
  const auto largest = static_cast<double>(std::ranges::max(budgets));
  std::vector<double> parts;
  for (uint64_t budget : budgets)
    parts.push_back(std::max(std::round(kParts * static_cast<double>(budget) / largest), 1.0));
  return parts;
}

// The ends of stages, found by dynamic programming.
class Division {
 public:
  Division(const Bytes& bytes, std::vector<bool> may_begin, std::vector<double> budgets)
      : bytes_(bytes), may_begin_(std::move(may_begin)), budgets_(std::move(budgets)) {
    for (uint64_t layer : bytes.layers) before_.push_back(before_.back() + layer);
  }

  // Returns the last layer's end of each stage; none where it is impossible.
  std::vector<size_t> ends() {
    const size_t layers = bytes_.layers.size();
    std::vector<std::vector<Best>> best(budgets_.size() + 1, std::vector<Best>(layers + 1));
    best[0][0].filled = 0;
    for (size_t stage = 0; stage < budgets_.size(); ++stage) {
      for (size_t begin = 0; begin < layers; ++begin) {
        const double before = best[stage][begin].filled;
        if (before == kImpossible || !may_begin_[begin]) continue;
        for (size_t end = begin + 1; end <= layers; ++end) {
          if (this->bytes(stage, begin, end) == 0) continue;  // layers that do nothing
          Best& now = best[stage + 1][end];
          const double filled = std::max(before, this->filled(stage, begin, end));
          if (filled < now.filled) now = {filled, begin};
        }
      }
    }
    if (best.back().back().filled == kImpossible) return {};
    std::vector<size_t> ends;
    for (size_t end = layers, stage = budgets_.size(); stage > 0; --stage) {
      ends.push_back(end);
      end = best[stage][end].begin;
    }
    std::ranges::reverse(ends);
    return ends;
  }

  uint64_t bytes(size_t stage, size_t begin, size_t end) const {
    uint64_t sum = before_[end] - before_[begin];
    if (stage == 0) sum += bytes_.embedding;
    if (stage + 1 == budgets_.size()) sum += bytes_.head;
    return sum;
  }

 private:
  static constexpr double kImpossible = std::numeric_limits<double>::infinity();
  struct Best {
    double filled = kImpossible;  // the fullest stage so far
    size_t begin = 0;             // of the last
  };
  double filled(size_t stage, size_t begin, size_t end) const {
    return static_cast<double>(bytes(stage, begin, end)) / budgets_[stage];
  }

  const Bytes& bytes_;
  std::vector<bool> may_begin_;
  std::vector<double> budgets_;
  std::vector<uint64_t> before_{0};  // bytes of the layers before each
};

}  // namespace

double Stage::share() const {
  if (all.empty()) return 1;
  uint64_t sum = 0;
  for (const StageLayers& stage : all) sum += stage.bytes;
  const uint64_t own = all[static_cast<size_t>(number)].bytes;
  return static_cast<double>(own) / static_cast<double>(std::max<uint64_t>(sum, 1));
}

Stage divide_layers(const DecoderSpec& spec, const io::CheckpointIndex* index,
                    const PartRequest& request) {
  Stage stage{.number = request.stage};
  if (request.budgets.empty()) return stage;
  const Bytes bytes = bytes_of(spec, index);
  Division division(bytes, borders(spec), rounded(request.budgets));
  const std::vector<size_t> ends = division.ends();
  if (ends.empty()) {
    fail(ErrorKind::usage,
         "--pipeline-parallel-size {}: the model's {} layers cannot be divided so often; give a "
         "smaller number",
         request.budgets.size(), spec.layers.size());
  }
  for (size_t begin = 0, i = 0; i < ends.size(); begin = ends[i++]) {
    stage.all.push_back({{static_cast<int64_t>(begin), static_cast<int64_t>(ends[i] - begin)},
                         division.bytes(i, begin, ends[i])});
  }
  return stage;
}

namespace {

void add_stages(const DecoderSpec& spec, const Stage& stage, ModulesElsewhere& modules) {
  const Share own = stage.all[static_cast<size_t>(stage.number)].layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    if (layer < own.begin || layer >= own.begin + own.count) modules.insert(layer_path(spec, i));
  }
  if (!stage.is_first()) {
    modules.insert(
        {spec.embedding, spec.input_projection, spec.embedding_norm.name, spec.positions});
    if (const auto& inputs = spec.layer_inputs)
      modules.insert({inputs->table, inputs->projection, inputs->norm.name});
    if (spec.altup) modules.insert(spec.altup->entries.begin(), spec.altup->entries.end());
  }
  if (!stage.is_last()) {
    if (spec.altup) modules.insert(spec.altup->exits.begin(), spec.altup->exits.end());
    const StreamMixSpec& mix = spec.streams.last;
    modules.insert(
        {spec.norm.name, spec.output_projection, spec.head, mix.logits, mix.scales, mix.biases});
  }
}

void add_experts(const ExpertsSpec& experts, int64_t layer, Rank rank, ModulesElsewhere& modules) {
  const Share own = experts.share(rank);
  for (int64_t e = 0; e < experts.count; ++e) {
    if (e >= own.begin && e < own.begin + own.count) continue;
    for (const LinearSpec* linear : {&experts.expert.up, &experts.expert.down})
      for (const PartSpec& part : linear->parts)
        if (!part.stacked) modules.insert(name_at(part.source, {layer, e}));
  }
}

}  // namespace

ModulesElsewhere modules_elsewhere(const DecoderSpec& spec, Rank rank, const Stage& stage) {
  ModulesElsewhere modules;
  if (stage.count() > 1) add_stages(spec, stage, modules);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    for (const MlpBranch& branch : spec.layer(i).mlps)
      if (branch.experts) add_experts(*branch.experts, static_cast<int64_t>(i), rank, modules);
  }
  return modules;
}

bool is_elsewhere(const ModulesElsewhere& modules, const std::string& tensor) {
  if (modules.contains(tensor)) return true;
  for (size_t end = tensor.find('.'); end != std::string::npos && !modules.empty();
       end = tensor.find('.', end + 1))
    if (modules.contains(tensor.substr(0, end))) return true;
  return false;
}

}  // namespace sluice
