#include "src/hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "src/base/check.h"

namespace sluice {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Digest::Digest(DigestKind kind, uint64_t bytes) : state_(std::make_unique<State>()) {
  check(state_->context != nullptr, "memory for a digest");
  const EVP_MD* algorithm = kind == DigestKind::sha256 ? EVP_sha256() : EVP_sha1();
  check(EVP_DigestInit_ex(state_->context, algorithm, nullptr) == 1, "a digest of OpenSSL");
  if (kind == DigestKind::sha256) return;
  const std::string head = fmt::format("blob {}", bytes);
  add({head.c_str(), head.size() + 1});
}

Digest::~Digest() = default;

void Digest::add(std::span<const char> bytes) {
  check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "a digest of OpenSSL");
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> value{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(state_->context, value.data(), &size) == 1, "a digest of OpenSSL");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", value[i]);
  return text;
}

}  // namespace sluice
