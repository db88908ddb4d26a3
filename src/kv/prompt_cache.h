// The keys and values of a prompt in a file, so that a later run need not compute them again.
//
//   file   header (JSON, kHeaderBytes) | the prompt's tokens, int32, as many as fill whole blocks |
//          a checksum (XXH3-64) of each slot | padding | slots, from a multiple of
//          io::kDirectAlignment on
//
// A slot is what KvAreas::gather makes of a block. They lie in the order of the tokens that they
// end with, those of one token by group; of a group with a sliding window or chunks there are those
// that a further token needs, of a state the one after all tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/kv/sequence.h"
#include "src/kv/storage.h"
#include "src/memory/ledger.h"

namespace sluice {

class PromptCache {
 public:
  // `identity`: all that decides keys and values but the tokens. A file of another identity is not
  // used, and save() replaces it. Throws Error(refused) if there is another kind of file at `path`.
  // Blocks, storage and ledger outlive it.
  PromptCache(std::filesystem::path path, std::string identity, const BlockManager& blocks,
              KvStorage& storage, Ledger& ledger);
  static uint64_t memory_bytes(uint64_t slot_bytes);  // memory of restore() and save()
  // Throws as the constructor does.
  static void check(const std::filesystem::path& path);

  // Brings what the file has of the beginning of `prompt` into `sequence`, which is new: the number
  // of tokens. 0, with a warning, where the file turns out to be damaged.
  int64_t restore(std::span<const int32_t> prompt, Sequence& sequence);
  // Writes what `sequence` holds of `prompt`, unless the file has as much. Throws Error(runtime).
  void save(std::span<const int32_t> prompt, const Sequence& sequence);

 private:
  struct Slot {
    int64_t block = 0;  // of the sequence's group
    size_t group = 0;
    int64_t end = 0;  // the tokens up to its last one, in the smallest blocks
  };
  void read_index(const io::Fd& fd, uint64_t file_bytes);
  std::vector<Slot> slots(int64_t blocks) const;  // of the smallest size
  int64_t whole(int64_t blocks) const;            // how many of these all groups' blocks fill
  uint64_t slots_begin(int64_t blocks, size_t slots) const;
  int64_t usable_blocks(std::span<const int32_t> prompt) const;
  void read_slots(std::span<const Slot> slots, const Sequence& sequence);

  std::filesystem::path path_;
  std::string identity_;
  const BlockManager& blocks_;
  KvStorage& storage_;
  Ledger& ledger_;
  std::vector<int32_t> tokens_;      // tokens in the file; none: unusable
  std::vector<uint64_t> checksums_;  // of its slots
};

}  // namespace sluice
