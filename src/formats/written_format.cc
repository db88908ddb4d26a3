#include "src/formats/written_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "quant/groups.h"
#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// The format of compressed-tensors that a scheme's weights have.
constexpr std::array kFormats = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"fp8_per_tensor", "float-quantized"},
    {"fp8_per_channel", "float-quantized"},
    {"fp8_per_block", "float-quantized"},
    {"fp8_dynamic", "float-quantized"},
    {"fp8_dynamic_per_block", "float-quantized"},
    {"int8", "int-quantized"},
    {"int8_weight_only", "pack-quantized"},
    {"int4_g128", "pack-quantized"},
    {"int4_g32", "pack-quantized"},
    {"mxfp8", "mxfp8-quantized"},
    {"mxfp4", "mxfp4-pack-quantized"},
    {"nvfp4", "nvfp4-pack-quantized"},
});

constexpr int64_t kWordBits = 32;
constexpr std::array<std::string_view, 3> kMethods{"compressed-tensors", "fp8", "bitsandbytes"};

bool is_grouped_scheme(const QuantScheme& scheme) {
  return scheme.grouped.scales == ScaleKind::grouped;
}
int bits_of(const QuantScheme& scheme) {
  return is_grouped_scheme(scheme) ? scheme.grouped.bits : 8;
}
bool are_floats(const QuantScheme& scheme) {
  return is_grouped_scheme(scheme) ? scheme.grouped.table != CodeTable::integers
                                   : scheme.codes == DType::f8_e4m3;
}

std::string_view format_of_scheme(WrittenMethod method, const QuantScheme& scheme) {
  const auto found = std::ranges::find(kFormats, scheme.name,
                                       &std::pair<std::string_view, std::string_view>::first);
  if (method == WrittenMethod::fp8 && scheme.group == ScaleGroup::block) return "fp8";
  if (method == WrittenMethod::bitsandbytes && scheme.grouped.table == CodeTable::own) return "nf4";
  if (method == WrittenMethod::compressed_tensors && found != kFormats.end()) return found->second;
  fail(ErrorKind::usage,
       "--format {}: has no form for {}; choose another --quantization, or another --format",
       kMethods[static_cast<size_t>(method)], scheme.name);
}

// The sizes of a matrix of bitsandbytes.
std::string quant_state(const WrittenMatrix& matrix, int64_t block) {
  const std::string_view dtype = matrix.stored == DType::bf16  ? "bfloat16"
                                 : matrix.stored == DType::f16 ? "float16"
                                                               : "float32";
  return Json{{"quant_type", "nf4"},
              {"blocksize", block},
              {"dtype", dtype},
              {"shape", {matrix.rows, matrix.cols}}}
      .dump();
}

std::span<const std::byte> bytes_of(const auto* values, int64_t count) {
  return std::as_bytes(std::span(values, static_cast<size_t>(count)));
}

// Bytes without a sign, as memory has them, become signed.
void make_signed(std::byte* codes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) codes[i] ^= std::byte{0x80};
}

}  // namespace

std::span<const std::string_view> written_methods() { return kMethods; }

std::optional<WrittenMethod> find_written_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name);
  if (found == kMethods.end()) return std::nullopt;
  return static_cast<WrittenMethod>(found - kMethods.begin());
}

WrittenFormat::WrittenFormat(WrittenMethod method, const QuantScheme& scheme)
    : method_(method),
      scheme_(scheme),
      memory_(scheme.format(DType::bf16, WeightLayout::rows)),
      format_(format_of_scheme(method, scheme)) {}

uint64_t WrittenFormat::code_row_bytes(int64_t cols) const {
  const int64_t bits = cols * bits_of(scheme_);
  return static_cast<uint64_t>(is_packed_ints() ? ceil_div(bits, kWordBits) * 4 : bits / 8);
}

std::string WrittenFormat::refusal(int64_t cols) const {
  const int64_t group = memory_.scale_cols;
  const bool in_groups =
      scheme_.group == ScaleGroup::columns || scheme_.group == ScaleGroup::nested;
  if (!in_groups || cols % group == 0) return {};
  return fmt::format("its {} inputs are no whole groups of {}", cols, group);
}

std::vector<WrittenPlane> WrittenFormat::planes(const WrittenMatrix& matrix) const {
  const auto [rows, cols, stored] = matrix;
  const auto code_bytes = static_cast<int64_t>(code_row_bytes(cols));
  if (method_ == WrittenMethod::bitsandbytes) {
    const auto state = static_cast<int64_t>(quant_state(matrix, memory_.scale_cols).size());
    return {{".weight", DType::u8, {rows * code_bytes, 1}},
            {".weight.absmax", DType::f32, {rows * groups_of(memory_, cols)}},
            {".weight.quant_map", DType::f32, {kCodeValues}},
            {".weight.quant_state.bitsandbytes__nf4", DType::u8, {state}}};
  }
  std::vector<WrittenPlane> planes;
  const bool is_fp4 = are_floats(scheme_) && bits_of(scheme_) == 4;
  if (is_packed_ints()) {
    planes.push_back({".weight_packed", DType::i32, {rows, code_bytes / 4}});
  } else if (is_fp4) {
    planes.push_back({".weight_packed", DType::u8, {rows, code_bytes}});
  } else {
    planes.push_back({".weight", are_floats(scheme_) ? DType::f8_e4m3 : DType::i8, {rows, cols}});
  }
  const bool is_fp8 = method_ == WrittenMethod::fp8;
  WrittenPlane scales{is_fp8 ? ".weight_scale_inv" : ".weight_scale", DType::f32, {rows, 1}};
  if (scheme_.group == ScaleGroup::tensor) scales.shape = {1};
  if (scheme_.group == ScaleGroup::block)
    scales.shape = {ceil_div(rows, kScaleBlock), ceil_div(cols, kScaleBlock)};
  if (memory_.scales == ScaleKind::grouped) {
    scales.shape = {rows, groups_of(memory_, cols)};
    // Powers of two are bytes there.
    scales.dtype = memory_.scale_type == DType::f8_e8m0 ? DType::u8 : memory_.scale_type;
  }
  planes.push_back(std::move(scales));
  if (memory_.outer != Outer::none) planes.push_back({".weight_global_scale", DType::f32, {1}});
  if (is_packed_ints()) planes.push_back({".weight_shape", DType::i64, {2}});
  return planes;
}

void WrittenFormat::put(const Weight& weight, int64_t first, int64_t rows,
                        const WrittenMatrix& matrix, const Write& write) const {
  if (memory_.scales == ScaleKind::grouped) {
    put_groups(weight, rows, write);
    if (first == 0) put_constants(weight, matrix, write);
    return;
  }
  const int64_t cols = weight.cols, across = ceil_div(cols, kScaleBlock);
  if (weight.format.dtype == DType::i8) make_signed(weight.data, rows * cols);
  write(0, bytes_of(weight.data, rows * cols));
  if (scheme_.group == ScaleGroup::row) write(1, bytes_of(weight.scales, rows));
  if (scheme_.group == ScaleGroup::tensor && first == 0) write(1, bytes_of(weight.scales, 1));
  for (int64_t r = 0; scheme_.group == ScaleGroup::block && r < rows; r += kScaleBlock)
    write(1, bytes_of(weight.scales + r / kPanelRows * across, across));
}

// Codes in order, and their scales.
void WrittenFormat::put_groups(const Weight& weight, int64_t rows, const Write& write) const {
  const auto in_memory = static_cast<size_t>(grouped_row_bytes(memory_, weight.cols));
  const size_t stored = code_row_bytes(weight.cols);
  const bool high_first = method_ == WrittenMethod::bitsandbytes;
  for (int64_t r = 0; r < rows; ++r) {
    std::byte* row = weight.data + static_cast<size_t>(r) * in_memory;
    for (size_t at = 0; at < in_memory; at += sizeof(uint32_t)) {
      uint32_t word;
      std::memcpy(&word, row + at, sizeof word);
      word = ordered_codes(word, memory_.bits);
      if (high_first) word = (word & 0x0f0f0f0f) << 4 | (word >> 4 & 0x0f0f0f0f);
      std::memcpy(row + at, &word, sizeof word);
    }
    write(0, {row, stored});
  }
  const int64_t scale_bytes = dtype_bytes(memory_.scale_type) * groups_of(memory_, weight.cols);
  write(1, bytes_of(weight.group_scales, rows * scale_bytes));
}

// Planes that have nothing of a row.
void WrittenFormat::put_constants(const Weight& weight, const WrittenMatrix& matrix,
                                  const Write& write) const {
  const std::array<int64_t, 2> shape{matrix.rows, matrix.cols};
  if (memory_.outer != Outer::none) write(2, bytes_of(weight.outers, 1));
  if (is_packed_ints()) write(2, bytes_of(shape.data(), 2));
  if (method_ != WrittenMethod::bitsandbytes) return;
  const std::string state = quant_state(matrix, memory_.scale_cols);
  write(2, bytes_of(weight.tables, kCodeValues));
  write(3, bytes_of(state.data(), std::ssize(state)));
}

Json WrittenFormat::group(const Json& targets) const {
  const auto args = [&](std::string_view strategy, bool dynamic) {
    Json made{{"num_bits", bits_of(scheme_)},
              {"type", are_floats(scheme_) ? "float" : "int"},
              {"symmetric", true},
              {"strategy", strategy},
              {"dynamic", dynamic},
              {"group_size", nullptr},
              {"block_structure", nullptr},
              {"actorder", nullptr},
              {"observer", dynamic ? Json() : Json("minmax")},
              {"observer_kwargs", Json::object()}};
    return made;
  };
  constexpr std::string_view kStrategies[] = {"",      "tensor", "channel",
                                              "block", "group",  "tensor_group"};
  Json weights = args(kStrategies[static_cast<size_t>(scheme_.group)], false);
  if (scheme_.group == ScaleGroup::columns || scheme_.group == ScaleGroup::nested)
    weights["group_size"] = memory_.scale_cols;
  if (scheme_.group == ScaleGroup::block) weights["block_structure"] = {kScaleBlock, kScaleBlock};
  if (memory_.scales == ScaleKind::grouped && memory_.scale_type == DType::f8_e8m0)
    weights["scale_dtype"] = "torch.uint8";
  if (memory_.outer != Outer::none) weights["scale_dtype"] = "torch.float8_e4m3fn";
  Json inputs;
  if (scheme_.quantized_input || (!is_grouped_scheme(scheme_) && scheme_.codes == DType::i8)) {
    const bool in_blocks = scheme_.group == ScaleGroup::block;
    inputs = args(in_blocks ? "group" : "token", true);
    if (in_blocks) inputs["group_size"] = kScaleBlock;
  }
  return {{"targets", targets},
          {"weights", weights},
          {"input_activations", inputs},
          {"output_activations", nullptr},
          {"format", format_}};
}

Json quantization_config(WrittenMethod method, std::span<const WrittenModules> modules) {
  Json others = Json::array(), groups = Json::object();
  const WrittenModules* most = nullptr;
  for (const WrittenModules& m : modules) {
    if (m.format == nullptr) others = m.names;
    if (m.format != nullptr && (most == nullptr || m.names.size() > most->names.size())) most = &m;
  }
  check(most != nullptr, "some modules are quantized");
  if (method == WrittenMethod::fp8)
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {kScaleBlock, kScaleBlock}},
            {"modules_to_not_convert", others}};
  if (method == WrittenMethod::bitsandbytes)
    return {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", true},
            {"load_in_8bit", false},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_use_double_quant", false},
            {"bnb_4bit_compute_dtype", "bfloat16"},
            {"bnb_4bit_quant_storage", "uint8"},
            {"llm_int8_skip_modules", others}};
  std::string_view format = most->format->format();
  // The group with the most modules has all that no other names.
  groups["group_0"] = most->format->group({"Linear"});
  for (const WrittenModules& m : modules) {
    if (m.format == nullptr || &m == most) continue;
    if (m.format->format() != format) format = "mixed-precision";
    groups[fmt::format("group_{}", groups.size())] = m.format->group(m.names);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"config_groups", groups},
          {"ignore", others}};
}

}  // namespace sluice
