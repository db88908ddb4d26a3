// A file of --prompt-cache, damaged: of a valid one the bytes from some place on are others, or
// missing. What is restored from it is what was stored.
#include "src/kv/prompt_cache.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "src/device/host_device.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

constexpr int64_t kBlocks = 3;
constexpr size_t kBytes = 512;  // of a block

struct Kv {
  Ledger ledger;
  KvLayout layout =
      kv_layout(KvSpecs(2, {{.heads = 2, .key_dim = 8, .value_dim = 8}}), {.block_size = 4});
  std::unique_ptr<Device> device = make_host_device();
  KvStorage storage{*device, host_stream(), ledger, layout, 8, {}};
  BlockManager blocks{{.block_size = 4, .groups = layout.groups, .blocks = {8, 0, 0}, .costs = {}}};
  Sequence sequence{blocks};
};

std::vector<int32_t> prompt() { return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}; }

std::vector<std::byte> content(uint64_t bytes, int64_t block) {
  std::vector<std::byte> all(bytes);
  for (size_t i = 0; i < kBytes; ++i)
    all[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(block));
  return all;
}

std::string valid_file(const std::filesystem::path& path) {
  Kv kv;
  std::vector<BlockCopy> copies;
  check(kv.sequence.table().reserve(0, kBlocks * 4, copies), "there are blocks");
  for (int64_t b = 0; b < kBlocks; ++b)
    kv.storage.scatter(content(kv.storage.slot_bytes(), b),
                       kv.sequence.table().blocks()[static_cast<size_t>(b)]);
  kv.sequence.grow(kBlocks * 4);
  PromptCache(path, "x", kv.blocks, kv.storage, kv.ledger).save(prompt(), kv.sequence);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void restore(const std::filesystem::path& path) {
  Kv kv;
  PromptCache cache(path, "x", kv.blocks, kv.storage, kv.ledger);
  int64_t tokens = cache.restore(prompt(), kv.sequence);
  check(tokens == 0 || tokens == kBlocks * 4, "all or nothing is the prompt's");
  std::vector<std::byte> found(kv.storage.slot_bytes());
  for (int64_t b = 0; b < tokens / 4; ++b) {
    kv.storage.gather(kv.sequence.table().blocks()[static_cast<size_t>(b)], found);
    auto stored = content(found.size(), b);
    check(std::memcmp(found.data(), stored.data(), kBytes) == 0, "what is restored was stored");
  }
}

}  // namespace

// Two bytes say where, one whether the file ends with what follows.
FUZZ_TARGET(prompt_cache) {
  static test::TempDir dir;
  static const std::string valid = valid_file(dir / "valid");
  if (size < 3) return 0;
  size_t at = (data[0] + 256u * data[1]) % valid.size();
  std::string_view text = test::text_of(data + 3, size - 3);
  std::string file = valid.substr(0, at) + std::string(text);
  if (data[2] % 2 == 0 && file.size() < valid.size()) file += valid.substr(file.size());
  test::write_file(dir / "damaged", file);
  return test::taken_or_refused([&] { restore(dir / "damaged"); });
}
