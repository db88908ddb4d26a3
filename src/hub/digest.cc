#include "src/hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "src/base/check.h"
#include "src/base/shared_library.h"

namespace sluice {
namespace {

struct Crypto {
  decltype(&EVP_MD_CTX_new) context;
  decltype(&EVP_MD_CTX_free) free;
  decltype(&EVP_sha256) sha256;
  decltype(&EVP_sha1) sha1;
  decltype(&EVP_DigestInit_ex) begin;
  decltype(&EVP_DigestUpdate) add;
  decltype(&EVP_DigestFinal_ex) end;
};

Crypto load_crypto() {
  const SharedLibrary library("libcrypto.so.3", {"libcrypto.so.3"});
  if (!library.found())
    fail(ErrorKind::runtime,
         "libcrypto.so.3 is missing, which fetching models needs; install libssl3");
  Crypto crypto{};
  library.load(crypto.context, "EVP_MD_CTX_new");
  library.load(crypto.free, "EVP_MD_CTX_free");
  library.load(crypto.sha256, "EVP_sha256");
  library.load(crypto.sha1, "EVP_sha1");
  library.load(crypto.begin, "EVP_DigestInit_ex");
  library.load(crypto.add, "EVP_DigestUpdate");
  library.load(crypto.end, "EVP_DigestFinal_ex");
  return crypto;
}

const Crypto& crypto() {
  static const Crypto loaded = load_crypto();
  return loaded;
}

}  // namespace

struct Digest::State {
  EVP_MD_CTX* context = crypto().context();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { crypto().free(context); }
};

Digest::Digest(DigestKind kind, uint64_t bytes) : state_(std::make_unique<State>()) {
  check(state_->context != nullptr, "memory for a digest");
  const EVP_MD* algorithm = kind == DigestKind::sha256 ? crypto().sha256() : crypto().sha1();
  check(crypto().begin(state_->context, algorithm, nullptr) == 1, "a digest of OpenSSL");
  if (kind == DigestKind::sha256) return;
  const std::string head = fmt::format("blob {}", bytes);
  add({head.c_str(), head.size() + 1});
}

Digest::~Digest() = default;

void Digest::add(std::span<const char> bytes) {
  check(crypto().add(state_->context, bytes.data(), bytes.size()) == 1, "a digest of OpenSSL");
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> value{};
  unsigned int size = 0;
  check(crypto().end(state_->context, value.data(), &size) == 1, "a digest of OpenSSL");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", value[i]);
  return text;
}

}  // namespace sluice
