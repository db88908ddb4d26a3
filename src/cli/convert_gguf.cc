// sluice quantize, sluice convert: write a GGUF file of a checkpoint.
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "io/checkpoint/gguf.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"
#include "src/base/units.h"
#include "src/cli/convert.h"
#include "src/engine/checkpoint.h"
#include "src/load/gguf_model.h"
#include "src/load/gguf_output.h"

namespace sluice::cli {
namespace {

// Two runs with the same identity write the same files.
std::string identity_of(const ConvertOptions& o, const Checkpoint& checkpoint,
                        const TokenizerFiles* tokenizer, const std::string& name) {
  TextChecksum text;
  text.add(fmt::format("gguf 2\n{}\n{}\n{}\n{}\n", o.quantization, o.dtype,
                       parse_size("--max-shard-size", o.max_shard_size), name));
  text.add(checkpoint.index().identity());
  text.add(checkpoint.config_of_results().dump());
  text.add(Json(checkpoint.model().files.eos_ids).dump());
  const ChatFiles chat = checkpoint.chat_files();
  for (const ChatTemplateText& t : chat.templates) text.add(Json{t.name, t.text}.dump());
  if (tokenizer == nullptr) return text.digits();
  text.add(tokenizer->config.dump());
  text.add(tokenizer->file.config.dump());
  for (const StringList* list : {&tokenizer->file.tokens, &tokenizer->file.merges})
    for (size_t i = 0; i < list->size(); ++i) text.add(fmt::format("{}\n", (*list)[i]));
  text.add(Json(tokenizer->file.ids).dump());
  return text.digits();
}

}  // namespace

void write_gguf(const ConvertOptions& o, const std::stop_token& stop) {
  const GgufScheme* scheme = o.quantization == "none" ? nullptr : &find_gguf_scheme(o.quantization);
  if (io::is_gguf(o.model_path))
    fail(ErrorKind::usage, "{}: is GGUF already; give the checkpoint that it was made from",
         o.model);
  if (std::filesystem::path(o.out).extension() == ".gguf")
    fail(ErrorKind::usage,
         "{}: names the directory in which model.gguf is written; leave .gguf out", o.out);
  const io::ModelDirectory directory(o.model_path, o.outside_links());
  Checkpoint checkpoint({o.model_path, {}, o.outside_links()}, true);
  const io::CheckpointIndex& index = checkpoint.index();
  for (const io::AbsentTensors& absent : index.absent()) index.refuse_absent(absent.names.front());
  const std::optional<TokenizerFiles> tokenizer = read_tokenizer_files(directory);
  const TokenizerFiles* const files = tokenizer ? &*tokenizer : nullptr;
  const std::string name =
      std::filesystem::absolute(o.model_path / "").parent_path().filename().string();
  OutputDirectory out(o.out, o.model_path, identity_of(o, checkpoint, files, name));
  const GgufModel model = gguf_model({.model = checkpoint.model(),
                                      .index = index,
                                      .tokenizer = files,
                                      .chat = checkpoint.chat_files(),
                                      .name = name},
                                     scheme, dtype_of(o), out.path() / "trial.gguf");
  const int threads = o.threads ? *o.threads : usable_threads();
  const uint64_t most_file_bytes = parse_size("--max-shard-size", o.max_shard_size);
  GgufOutput writer({.model = model,
                     .index = index,
                     .most_file_bytes = most_file_bytes,
                     .verify = o.verify,
                     .options = {.threads = threads},
                     .stop = stop});
  write_all(o, writer, out, [](std::span<std::byte>) {});
}

}  // namespace sluice::cli
