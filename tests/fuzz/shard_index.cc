// model.safetensors.index.json beside the shards that it may name.
#include "io/checkpoint/shard_index.h"

#include "io/checkpoint/index.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(shard_index) {
  std::string_view text = test::text_of(data, size);
  static const test::TempDir dir;
  static const bool copied = [] {
    std::filesystem::copy(test::source_dir() / "tests/data/io/sharded", dir.path(),
                          std::filesystem::copy_options::overwrite_existing);
    return true;
  }();
  check(copied, "there are shards");
  test::taken_or_refused([&] {
    for (const io::Shard& shard : io::parse_shard_index(text, "input").shards) {
      check(!shard.tensors.empty() && !shard.file.starts_with('/'), "a file inside");
      for (const auto& part : std::filesystem::path(shard.file))
        check(part != "..", "stays inside");
    }
  });
  test::write_file(dir / "model.safetensors.index.json", text);
  return test::taken_or_refused([&] { io::open_checkpoint(dir.path(), {}); });
}
