// Tensors of GGUF that are several on the hub.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/gguf/gguf.h"

namespace sluice {
namespace {

// The rows of q and of k, before those of v, of a layer.
std::array<int64_t, 2> query_and_key_rows(const io::GgufHeader& header, const JsonFields& fields,
                                          const std::string& architecture,
                                          const std::string& layer) {
  constexpr const char* kHeads = "attention.head_count";
  const auto key = [&](const char* name) { return architecture + name; };
  const int64_t heads = gguf_layer_number(header, architecture, kHeads, layer),
                kv_heads =
                    gguf_layer_number(header, architecture, "attention.head_count_kv", layer);
  if (heads < 1)
    fail(ErrorKind::refused, "{}: {}.{} of layer {} is missing or 0, but its q, k and v are there",
         fields.where(), architecture, kHeads, io::printable(layer));
  const int64_t hidden = fields.integer(key(".embedding_length").c_str(), 1, kMaxWidth);
  const int64_t size = fields.integer_or(key(".attention.key_length").c_str(), 1, kMaxWidth,
                                         std::max<int64_t>(hidden / heads, 1));
  return {heads * size, (kv_heads > 0 ? kv_heads : heads) * size};
}

// Rows of the last dimension's elements; the elements of a vector.
uint64_t rows_of(const Shape& shape) {
  int64_t rows = 1;
  for (int d = 0; d < std::max(shape.size() - 1, 1); ++d) rows *= shape[d];
  return static_cast<uint64_t>(rows);
}

// Parts of a tensor by its rows, in their order.
struct RowsPart {
  std::string name;
  Shape shape;
  int64_t rows;
};
void take_rows_apart(const io::StoredTensor& tensor, std::span<const RowsPart> parts,
                     std::vector<io::StoredTensor>& all) {
  uint64_t offset = tensor.offset;
  const uint64_t row = tensor.bytes / rows_of(tensor.shape);
  for (const RowsPart& part : parts) {
    io::StoredTensor& own = all.emplace_back(tensor);
    own.name = part.name;
    own.shape = part.shape;
    own.offset = offset;
    own.bytes = static_cast<uint64_t>(part.rows) * row;
    offset += own.bytes;
  }
}

// q, k and v of layer `at`, whose tensor ends so.
std::vector<RowsPart> heads_of(const io::GgufHeader& header, const std::string& architecture,
                               const io::StoredTensor& tensor, const std::string& layer,
                               const std::string& end) {
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const auto [queries, keys] = query_and_key_rows(header, fields, architecture, layer);
  const int64_t rows = tensor.shape[0], values = rows - queries - keys;
  if (values < 1)
    fail(ErrorKind::refused, "{}: {} has {} rows, but its queries and keys are {} and {}",
         fields.where(), io::printable(tensor.name), rows, queries, keys);
  std::vector<RowsPart> parts;
  for (const auto& [part, count] : {std::pair{"q", queries}, {"k", keys}, {"v", values}})
    parts.push_back({fmt::format("blk.{}.attn_{}.{}", layer, part, end),
                     tensor.shape.size() == 1 ? Shape{count} : Shape{count, tensor.shape[1]},
                     count});
  return parts;
}

// Its matrices, or the rows of a matrix: "NAME.N.weight".
std::vector<RowsPart> slices_of(const io::GgufHeader& header, const io::StoredTensor& tensor,
                                const std::string& name, const std::string& end) {
  constexpr int64_t kMost = 64;
  if (tensor.shape[0] > kMost)
    fail(ErrorKind::refused, "{}: {} has {} parts, but at most {} are supported",
         io::printable(header.file.path.string()), io::printable(tensor.name), tensor.shape[0],
         kMost);
  std::vector<RowsPart> parts;
  const bool is_matrix = tensor.shape.size() == 2;
  const Shape shape = is_matrix ? Shape{tensor.shape[1]} : Shape{tensor.shape[1], tensor.shape[2]};
  for (int64_t i = 0; i < tensor.shape[0]; ++i)
    parts.push_back({fmt::format("{}.{}.{}", name, i, end), shape, is_matrix ? 1 : shape[0]});
  return parts;
}

}  // namespace

io::GgufCheckpoint open_gguf_parts(const io::ModelFile& file,
                                   std::span<const std::filesystem::path> mirrors) {
  io::GgufCheckpoint checkpoint = io::open_gguf(file, mirrors);
  const GgufArchitecture& architecture = find_gguf_architecture(checkpoint);
  std::vector<io::StoredTensor> all;
  for (io::StoredTensor& tensor : checkpoint.tensors) {
    std::string_view name = tensor.name, layer;
    if (const size_t dot = name.find('.', 4); name.starts_with("blk.") && dot != name.npos) {
      layer = name.substr(4, dot - 4);
      name = name.substr(dot + 1);
    }
    const size_t dot = std::min(name.rfind('.'), name.size());
    const std::string stem(name.substr(0, dot)), end(name.substr(std::min(dot + 1, name.size())));
    const auto rule = std::ranges::find(architecture.names, stem, &GgufName::name);
    const GgufNameEnd kind = rule == architecture.names.end() ? GgufNameEnd::same : rule->end;
    if (kind == GgufNameEnd::heads_apart && tensor.shape.size() > 0) {
      take_rows_apart(tensor,
                      heads_of(checkpoint.header, std::string(architecture.name), tensor,
                               std::string(layer), end),
                      all);
    } else if (kind == GgufNameEnd::slices && tensor.shape.size() > 1 && tensor.shape.size() < 4) {
      const std::string full = tensor.name.substr(0, tensor.name.size() - name.size()) + stem;
      take_rows_apart(tensor, slices_of(checkpoint.header, tensor, full, end), all);
    } else {
      all.push_back(std::move(tensor));
    }
  }
  checkpoint.tensors = std::move(all);
  return checkpoint;
}

}  // namespace sluice
