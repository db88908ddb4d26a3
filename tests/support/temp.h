// Temporary directories and small files for tests; removed at the end of their scope.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "src/base/error.h"

namespace sluice::test {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
    check(mkdtemp(pattern.data()) != nullptr, "mkdtemp");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  check(out.good(), "write_file");
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  check(in.good(), "read_file: cannot open " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// SLUICE_SOURCE, for programs that were built elsewhere; else where they were built. Not inline: a
// compiler cache has other sources' objects for any clone.
std::filesystem::path source_dir();

// Folder of shared fixtures: SLUICE_ORACLE, which must be there if it is given, else
// ../shared/oracle/fixtures beside the source, or empty where there is none.
inline std::filesystem::path oracle_dir() {
  const char* given = std::getenv("SLUICE_ORACLE");
  std::filesystem::path path =
      given ? std::filesystem::path(given) : source_dir().parent_path() / "shared/oracle/fixtures";
  bool there = std::filesystem::is_directory(path);
  check(given == nullptr || there, "SLUICE_ORACLE names no directory");
  return there ? path : std::filesystem::path();
}

}  // namespace sluice::test
