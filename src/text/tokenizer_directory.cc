// The files of a directory that are its tokenizer.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <system_error>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/text/conversion.h"
#include "src/text/sentence_piece.h"
#include "src/text/tiktoken.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_file.h"
#include "src/text/vocab_and_merges.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTekken = "tekken.json";
constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
constexpr uint64_t kMaxMergesBytes = 256 * MiB;

// tokenizer_config.json, with what was in files of its own before 2024.
Json read_config(const io::ModelDirectory& directory) {
  constexpr const char* kDecoder = "added_tokens_decoder";
  Json config = read_json_file(directory, kTokenizerConfig);
  const Json special = read_json_file(directory, "special_tokens_map.json");
  for (const auto& [key, value] : special.items())
    if (!config.contains(key) || (value.is_object() && config[key].is_string()))
      config[key] = value;
  if (config.contains(kDecoder)) return config;
  const Json added = read_json_file(directory, "added_tokens.json");
  for (const auto& [content, id] : added.items())
    if (id.is_number_unsigned()) config[kDecoder][id.dump()] = content;
  return config;
}

// The names of the bos and eos tokens, which older files have beside tokenizer_config.json only.
void add_special_names(const io::ModelDirectory& directory, Json& config) {
  constexpr std::array kNames{"bos_token", "eos_token"};
  if (config.contains("added_tokens_decoder")) return;
  if (std::ranges::all_of(kNames, [&](const char* name) { return config.contains(name); })) return;
  const Json special = read_json_file(directory, "special_tokens_map.json");
  for (const char* name : kNames)
    if (!config.contains(name) && special.contains(name) && token_content(special[name]))
      config[name] = special[name];
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// The file that the tokenizer is made from, the first of those that we know.
std::optional<std::string> find_file(const io::ModelDirectory& directory) {
  const std::vector<std::string> names = names_in(directory.path());
  for (std::string_view known : {kTokenizerFile, kTekken, std::string_view("tokenizer.model"),
                                 std::string_view("tiktoken.model")})
    if (std::ranges::binary_search(names, known)) return std::string(known);
  for (const std::string& name : names)
    if (name.ends_with(".tiktoken")) return name;
  if (std::ranges::binary_search(names, kVocabFile) &&
      std::ranges::binary_search(names, kMergesFile))
    return std::string(kVocabFile);
  return std::nullopt;
}

// A token that tokenizer_config.json describes is found in a text, too, where the vocabulary has
// it, though tokenizer.json does not list it.
void add_described_tokens(const Json& config, TokenizerFile& file) {
  if (!file.config.is_object()) return;  // is refused
  Json& added = file.config["added_tokens"];
  if (added.is_null()) added = Json::array();
  if (!added.is_array()) return;
  std::set<std::string> listed;
  for (const Json& token : added)
    if (std::optional<std::string> content = token_content(token)) listed.insert(*content);
  std::map<std::string, Json, std::less<>> missing;
  for (Json& token : described_tokens(config, Names::always)) {
    const auto content = token["content"].get<std::string>();
    if (!listed.contains(content)) missing.try_emplace(content, std::move(token));
  }
  for (size_t i = 0; i < file.tokens.size() && !missing.empty(); ++i) {
    const auto found = missing.find(file.tokens[i]);
    if (found == missing.end()) continue;
    found->second["id"] = file.ids[i];
    added.push_back(std::move(found->second));
    missing.erase(found);
  }
}

TokenizerFile convert(const io::ModelDirectory& directory, const std::string& name,
                      const std::string& bytes, Json& config) {
  if (name == kVocabFile)
    return read_vocab_and_merges(bytes, directory.read(kMergesFile, kMaxMergesBytes), config);
  if (name == kTekken) return read_tekken(bytes, config);
  if (is_sentence_piece(bytes)) return read_sentence_piece(bytes, name, config);
  return read_tiktoken(bytes, name, config);
}

}  // namespace

bool Tokenizer::is_in(const io::ModelDirectory& directory) {
  return find_file(directory).has_value();
}

std::string Tokenizer::missing(const fs::path& model) {
  return fmt::format(
      "{} has no tokenizer (tokenizer.json, tekken.json, tokenizer.model, tiktoken.model, "
      "*.tiktoken, or vocab.json with merges.txt; in a GGUF file, a vocabulary)",
      model.string());
}

std::optional<TokenizerFiles> read_tokenizer_files(const io::ModelDirectory& directory) {
  TokenizerFiles files;
  files.name = find_file(directory).value_or(std::string(kTokenizerFile));
  const std::optional<std::string> bytes = read_text_file(directory, files.name);
  if (!bytes) return std::nullopt;
  if (files.name == kTokenizerFile) {
    files.file = parse_tokenizer_file(*bytes);
    files.config = read_json_file(directory, kTokenizerConfig);
    add_described_tokens(files.config, files.file);
    add_special_names(directory, files.config);
  } else {
    files.config = read_config(directory);
    files.file = convert(directory, files.name, *bytes, files.config);
  }
  return files;
}

Tokenizer Tokenizer::load(const TokenizerFiles& files) {
  try {
    return load(files.file, files.config);
  } catch (const Error& e) {
    if (files.name == kTokenizerFile) throw;
    // It speaks of a tokenizer.json that nobody has.
    fail(e.kind(), "{}: as a tokenizer.json: {}", files.name, e.what());
  }
}

Tokenizer Tokenizer::load(const io::ModelDirectory& directory) {
  const std::optional<TokenizerFiles> files = read_tokenizer_files(directory);
  if (!files) fail(ErrorKind::refused, "{}", missing(directory.path()));
  return load(*files);
}

}  // namespace sluice
