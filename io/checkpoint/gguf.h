// The GGUF format, versions 2 and 3, little-endian: typed metadata, descriptions of tensors, then
// their data, each tensor at a multiple of general.alignment.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/base/json.h"

namespace sluice::io {

// Types of metadata, with the format's numbers.
enum class GgufType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

// An array of the metadata; its elements, a vocabulary say, stay in the file.
struct GgufArray {
  GgufType type = GgufType::u8;  // of the elements, which are no arrays
  uint64_t count = 0;
  uint64_t offset = 0;  // of the first, bytes from the start of the file
  uint64_t bytes = 0;
};

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint64_t kGgufAlignment = 32;  // where the metadata name no other one

struct GgufHeader {
  CheckpointFile file;
  uint64_t alignment = 0;  // of data
  // Keys of the metadata with their values, as they follow one another in the file; but not those
  // that say that the model is in several files.
  struct Keys {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  std::vector<Keys> keys;
  Json values;  // an object: what the metadata has of numbers, booleans and strings, by key
  std::map<std::string, GgufArray, std::less<>> arrays;
  // Under the names that the file gives them, with file = 0, in the order of their data. Shapes are
  // row-major: the file has the dimensions in the opposite order.
  std::vector<StoredTensor> tensors;
};

// The key of the metadata under which a file that is cut for ranks has its config.json: some sizes
// of a model are those of whole tensors alone.
inline constexpr std::string_view kGgufCutConfig = "sluice.config";

// Returns the format's number of a type that its tensors may have.
uint32_t gguf_tensor_type(DType type);

// Reads and checks the header of the file at `path`; `name` is what the checkpoint calls it.
// Tensors lie inside the file, aligned, without overlap. Throws Error(refused) naming file, key or
// tensor, and fault.
GgufHeader read_gguf_header(const std::filesystem::path& path, std::string name);

// The elements of an array of strings, or of one of numbers or booleans, one after another. Throws
// Error(refused) naming `key` where it has elements of another type, Error(runtime) when the file
// has changed.
void each_gguf_string(const GgufHeader& header, std::string_view key,
                      const std::function<void(std::string_view)>& take);
std::vector<double> read_gguf_numbers(const GgufHeader& header, std::string_view key);

// A model in one file, or in several, NAME-00001-of-00003.gguf and so on.
struct GgufCheckpoint {
  GgufHeader header;                  // of the first file, which has all metadata
  std::vector<CheckpointFile> files;  // in the order of their numbers
  std::vector<FileCopy> copies;
  std::vector<StoredTensor> tensors;  // of all files, under their names there
};

// `file` is any of the files. `mirrors` are directories with some or all of them, as for
// open_checkpoint. Throws Error(refused).
GgufCheckpoint open_gguf(const ModelFile& file,
                         std::span<const std::filesystem::path> mirrors = {});

// True for a regular file that begins as GGUF files do, or that has their extension.
bool is_gguf(const std::filesystem::path& path);

}  // namespace sluice::io
