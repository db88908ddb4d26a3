#include "src/kv/prompt_cache.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "io/json_header.h"
#include "io/new_file.h"
#include "io/reader.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr const char* kFormat = "sluice.prompt/1";
constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kPromptReads = 4;  // in flight

template <class T>
std::string index_checksum(std::span<const int32_t> tokens, const T& checksums) {
  return checksum128(std::as_bytes(tokens)) + checksum128(std::as_bytes(std::span(checksums)));
}

// nullopt where there is no file.
std::optional<io::Fd> open_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  return io::open_regular(path);
}

// Returns the header of a file of this version; fails for any other file.
Json read_header(const io::Fd& fd, const std::filesystem::path& path) {
  try {
    Json json = io::read_json_header(fd, path, kHeaderBytes);
    if (JsonFields(json, path.string()).string("format") == kFormat) return json;
  } catch (const Error&) {  // says less than what follows
  }
  fail(ErrorKind::refused, "{}: not a prompt cache of this version; give another --prompt-cache",
       path.string());
}

template <class T>
void read_array(const io::Fd& fd, const std::filesystem::path& path, uint64_t offset,
                std::vector<T>& to) {
  auto bytes = std::as_writable_bytes(std::span(to));
  io::read_exactly(fd, path, offset, {reinterpret_cast<char*>(bytes.data()), bytes.size()});
}

}  // namespace

PromptCache::PromptCache(std::filesystem::path path, std::string identity,
                         const BlockManager& blocks, KvStorage& storage, Ledger& ledger)
    : path_(std::move(path)),
      identity_(std::move(identity)),
      blocks_(blocks),
      storage_(storage),
      ledger_(ledger) {
  if (auto fd = open_file(path_)) read_index(*fd, io::describe_file(*fd, path_, "").size);
}

void PromptCache::check(const std::filesystem::path& path) {
  if (auto fd = open_file(path)) read_header(*fd, path);
}

uint64_t PromptCache::memory_bytes(uint64_t slot_bytes) {
  return kPromptReads * io::slot_for_any_offset(slot_bytes);
}

// Sizes are compared with the file's before they are used.
void PromptCache::read_index(const io::Fd& fd, uint64_t file_bytes) {
  Json json = read_header(fd, path_);
  JsonFields fields(json, path_.string());
  if (fields.string("identity") != identity_) {
    log::warning("{}: is of another model, or of other settings; it will be replaced",
                 path_.string());
    return;
  }
  int64_t most = static_cast<int64_t>(std::min<uint64_t>(file_bytes, INT32_MAX)) /
                 (blocks_.block_size() * static_cast<int64_t>(sizeof(int32_t)));
  int64_t count = fields.integer("blocks", 1, std::max<int64_t>(most, 1));
  std::vector<Slot> all = slots(count);
  uint64_t begin = slots_begin(count, all.size());
  bool whole = begin <= file_bytes && file_bytes - begin == all.size() * storage_.slot_bytes();
  if (whole) {
    tokens_.resize(static_cast<size_t>(count * blocks_.block_size()));
    checksums_.resize(all.size());
    read_array(fd, path_, kHeaderBytes, tokens_);
    read_array(fd, path_, kHeaderBytes + tokens_.size() * sizeof(int32_t), checksums_);
    if (index_checksum(tokens_, checksums_) == fields.string("checksum")) return;
  }
  log::warning("{}: is damaged; it will be replaced", path_.string());
  tokens_.clear();
}

std::vector<PromptCache::Slot> PromptCache::slots(int64_t blocks) const {
  std::vector<Slot> all;
  for (int64_t end = 1; end <= blocks; ++end) {
    for (size_t g = 0; g < blocks_.groups(); ++g) {
      if (blocks_.is_state(g)) {
        if (end == blocks) all.push_back({0, g, end});
        continue;
      }
      const int64_t block = end / blocks_.multiple(g) - 1;
      if (end % blocks_.multiple(g) == 0 &&
          block >= blocks_.first_block(g, blocks * blocks_.block_size()))
        all.push_back({block, g, end});
    }
  }
  return all;
}

int64_t PromptCache::whole(int64_t blocks) const {
  const int64_t each = blocks_.common_block_size() / blocks_.block_size();
  return blocks / each * each;
}

uint64_t PromptCache::slots_begin(int64_t blocks, size_t slots) const {
  uint64_t tokens = static_cast<uint64_t>(blocks * blocks_.block_size()) * sizeof(int32_t);
  return round_up(kHeaderBytes + tokens + slots * sizeof(uint64_t), io::kDirectAlignment);
}

// Returns the blocks that can be restored for `prompt`. A part of the file's tokens is usable only
// if nothing was left out: a group with a window may lack what the next token needs, and a state is
// the one after all tokens.
int64_t PromptCache::usable_blocks(std::span<const int32_t> prompt) const {
  auto same = std::ranges::mismatch(prompt, tokens_).in2 - tokens_.begin();
  int64_t known = std::ssize(tokens_) / blocks_.block_size();
  int64_t common = same / blocks_.block_size();
  if (common == known) return whole(common) == common ? common : 0;
  int64_t all = 0;  // blocks, if none is left out
  for (size_t g = 0; g < blocks_.groups(); ++g) all += known / blocks_.multiple(g);
  bool all_kept = !blocks_.has_states() && std::ssize(slots(known)) == all;
  return all_kept ? whole(common) : 0;
}

int64_t PromptCache::restore(std::span<const int32_t> prompt, Sequence& sequence) {
  int64_t blocks = usable_blocks(prompt), size = blocks_.block_size();
  if (blocks == 0) return 0;
  std::vector<Slot> all = slots(std::ssize(tokens_) / size);
  std::erase_if(all, [&](const Slot& s) { return s.end > blocks; });
  std::vector<BlockCopy> copies;  // of nothing that anybody needs
  for (int64_t b = 0; b < blocks; ++b)
    if (!sequence.table().reserve(b * size, (b + 1) * size, copies)) return 0;
  try {
    read_slots(all, sequence);
  } catch (const Error& e) {
    log::warning("{}; the prompt is computed", e.what());
    tokens_.clear();
    return 0;
  }
  // Blocks that are not in the file are those that no further token needs.
  sequence.table().reserve(blocks * size, blocks * size, copies);
  sequence.grow(blocks * size);
  sequence.table().remember(prompt.first(static_cast<size_t>(blocks * size)));
  return blocks * size;
}

void PromptCache::read_slots(std::span<const Slot> slots, const Sequence& sequence) {
  uint64_t bytes = storage_.slot_bytes();
  Buffer staging(ledger_, Use::swap, "prompt cache", memory_bytes(bytes), Buffer::Touch::now);
  io::Fd fd = io::open_regular(path_);
  std::array files{io::describe_file(fd, path_, path_.filename())};
  auto reader =
      io::open_reader(files, staging.bytes(), {.slot_bytes = io::slot_for_any_offset(bytes)});
  uint64_t begin = slots_begin(std::ssize(tokens_) / blocks_.block_size(), checksums_.size());
  size_t asked = 0;
  for (size_t arrived = 0; arrived < slots.size(); ++arrived) {
    for (; asked < slots.size() && reader->free_slots() > 0; ++asked)
      reader->submit({0, begin + asked * bytes, bytes, asked});
    io::ReadResult read = reader->wait();
    if (checksum64(read.bytes) != checksums_[read.tag])
      fail(ErrorKind::runtime, "{}: is damaged", path_.string());
    const Slot& slot = slots[read.tag];
    storage_.scatter(read.bytes,
                     sequence.table().blocks(slot.group)[static_cast<size_t>(slot.block)]);
    reader->release(read);
  }
}

void PromptCache::save(std::span<const int32_t> prompt, const Sequence& sequence) {
  int64_t blocks = whole(sequence.length() / blocks_.block_size());
  if (blocks_.has_states() && !blocks_.snapshot_at(sequence.length())) return;
  auto ids = prompt.first(static_cast<size_t>(blocks * blocks_.block_size()));
  if (std::ranges::mismatch(ids, tokens_).in1 == ids.end()) return;
  uint64_t bytes = storage_.slot_bytes();
  std::vector<Slot> all = slots(blocks);
  uint64_t begin = slots_begin(blocks, all.size());
  auto file = io::NewFile::create(path_, begin + all.size() * bytes);
  if (!file) fail(ErrorKind::runtime, "{}: another process is writing it", path_.string());
  Buffer staging(ledger_, Use::swap, "prompt cache", bytes, Buffer::Touch::now);
  std::vector<uint64_t> checksums;
  for (const Slot& slot : all) {
    storage_.gather(sequence.table().blocks(slot.group)[static_cast<size_t>(slot.block)],
                    staging.bytes());
    file->write(begin + checksums.size() * bytes, staging.bytes());
    checksums.push_back(checksum64(staging.bytes()));
  }
  std::string header = io::json_header({{"format", kFormat},
                                        {"identity", identity_},
                                        {"blocks", blocks},
                                        {"checksum", index_checksum(ids, checksums)}},
                                       kHeaderBytes);
  file->write(kHeaderBytes, std::as_bytes(ids));
  file->write(kHeaderBytes + ids.size_bytes(), std::as_bytes(std::span(checksums)));
  file->write(0, std::as_bytes(std::span(header)));
  file->publish();
  tokens_.assign(ids.begin(), ids.end());
  checksums_ = std::move(checksums);
}

}  // namespace sluice
