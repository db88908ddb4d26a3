// The hashes that name contents on the hub.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sluice {

enum class DigestKind : uint8_t {
  sha256,    // of a file that the hub keeps in its large storage
  git_blob,  // of others: SHA-1 of "blob SIZE\0" and the contents, as git names them
};

class Digest {
 public:
  // `bytes`: size of the whole contents.
  Digest(DigestKind kind, uint64_t bytes);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::span<const char> bytes);
  std::string hex();  // once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
