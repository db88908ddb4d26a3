#include "src/models/source.h"

#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/quantization_config.h"
#include "src/models/gguf/gguf.h"
#include "src/models/meta.h"
#include "src/models/mlx.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Links that lead nowhere, or in a ring, count as absent.
bool is_there(const fs::path& path) {
  std::error_code fault;
  return fs::exists(path, fault);
}

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";

// A directory as the hub has it.
class DirectorySource : public ModelSource {
 public:
  DirectorySource(io::ModelDirectory directory, std::span<const fs::path> mirrors,
                  io::OpeningRank rank)
      : directory_(std::move(directory)), mirrors_(mirrors.begin(), mirrors.end()), rank_(rank) {}

  std::string_view config_name() const override { return kConfig; }
  Json config() const override { return settled_config(); }
  std::optional<Json> generation_config() const override {
    if (!has(kGeneration)) return std::nullopt;
    return read_json(kGeneration);
  }
  io::CheckpointIndex index() const override {
    io::CheckpointIndex stored = opened_ ? *std::exchange(opened_, std::nullopt) : open();
    return is_of_mlx(stored) ? with_hub_names(stored) : std::move(stored);
  }
  SourceFacts facts() const override {
    if (!has(kConfig) || io::container_name(directory_.path()).empty()) return {};
    const Json& config = settled_config();  // its faults are told before those of weights
    const io::CheckpointIndex& stored = opened_.emplace(open());
    if (!is_of_mlx(stored)) return {};
    refuse_multiplied(config);
    return mlx_facts(stored);
  }
  std::optional<Tokenizer> tokenizer() const override {
    if (!Tokenizer::is_in(directory_)) return std::nullopt;
    return Tokenizer::load(directory_);
  }
  ChatFiles chat_files() const override { return read_chat_files(directory_); }
  EmbeddingRules embedding_rules() const override { return read_embedding_rules(directory_); }

 private:
  io::CheckpointIndex open() const { return io::open_checkpoint(directory_, mirrors_, rank_); }
  // Read once: a list of quantized modules may be long.
  const Json& settled_config() const {
    if (config_) return *config_;
    if (std::error_code fault;
        !has(kConfig) && !fs::is_symlink(directory_.path() / kConfig, fault)) {
      fail(ErrorKind::refused,
           "{}: has no config.json; give the directory of a checkpoint, or a GGUF file",
           io::printable(directory_.path().string()));
    }
    Json config = read_json(kConfig);
    settle_quantization_config(config, [this](const char* file) -> std::optional<Json> {
      if (!has(file)) return std::nullopt;
      return read_json(file);
    });
    return config_.emplace(std::move(config));
  }
  bool is_of_mlx(const io::CheckpointIndex& stored) const {
    return has(kConfig) && (is_mlx(settled_config()) || lies_as_mlx(stored));
  }
  bool has(const char* name) const { return is_there(directory_.path() / name); }
  Json read_json(const char* name) const {
    constexpr uint64_t kMaxBytes = 16 * MiB;
    return parse_json(directory_.read(name, kMaxBytes), name);
  }

  io::ModelDirectory directory_;
  std::vector<fs::path> mirrors_;
  io::OpeningRank rank_;
  mutable std::optional<Json> config_;
  mutable std::optional<io::CheckpointIndex> opened_;  // for facts, until the index is asked for
};

[[noreturn]] void refuse_path(const fs::path& model) {
  const std::string name = io::printable(model.string());
  if (!is_there(model)) {
    fail(ErrorKind::refused,
         "{}: does not exist; give a directory with config.json, a GGUF file, or a name of the "
         "hub, ORG/NAME",
         name);
  }
  const fs::path parent = model.has_parent_path() ? model.parent_path() : fs::path(".");
  if (is_there(parent / "config.json")) {
    fail(ErrorKind::refused, "{}: is neither a directory nor a GGUF file; give its directory, {}",
         name, io::printable(parent.string()));
  }
  fail(ErrorKind::refused,
       "{}: is neither a directory nor a GGUF file; give a directory with config.json, or a GGUF "
       "file",
       name);
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const ModelPlace& place, io::OpeningRank rank) {
  const fs::path& model = place.path;
  std::error_code fault;
  if (fs::is_directory(model, fault)) {
    const io::ModelDirectory directory(model, place.outside_links);
    if (const std::string file = io::rank_gguf(model, rank); !file.empty())
      return open_gguf_model({directory, file}, place.mirrors, rank.ranks);
    auto files = std::make_unique<DirectorySource>(directory, place.mirrors, rank);
    if (is_meta_model(model)) return open_meta_model(directory, std::move(files));
    return files;
  }
  if (io::is_gguf(model)) return open_gguf_model({model, place.outside_links}, place.mirrors);
  refuse_path(model);
}

}  // namespace sluice
