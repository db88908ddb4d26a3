// Matrices whose codes and scales are tensors of their own: every element that a load or a pass
// over the weights leaves in memory is a code of the file times its scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "quant/float8.h"
#include "src/device/host_device.h"
#include "src/load/streamer.h"
#include "src/load/tile_stream.h"
#include "src/plan/compile.h"
#include "src/plan/lay_out.h"
#include "tests/load/loaded_ranks.h"
#include "tests/support/fusion.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using test::Fusion;
using test::TinyTensor;

// FP8 with a scale for each tensor, row or block; MXFP4 as gpt-oss has it; integers of
// compressed-tensors, with zeros along columns; bitsandbytes' nested tables, whose groups ignore
// rows; NVFP4 of ModelOpt; GPTQ whose groups have inputs from anywhere.
enum class ScalesOf { tensor, row, block, group, zeros, nested, global, columns };

// A Llama of codes, with parts of its layers in one tensor or each in its own.
struct CodesModel {
  test::Random random;
  test::TempDir dir;
  ScalesOf scales_of;
  int64_t block_rows = 128, block_cols = 128;
  Json config = test::tiny_config();
  std::vector<Fusion> fusions;
  std::vector<TinyTensor> stored;
  Rank rank;
  Staging staging;
  LoadOptions options;
  Model model;
  std::optional<io::CheckpointIndex> index;
  std::map<std::string, std::vector<float>> elements;  // of zeros, nested and global

  CodesModel(uint64_t seed, ScalesOf kind) : random(seed), scales_of(kind) {
    const bool block = kind == ScalesOf::block, group = kind == ScalesOf::group;
    const bool by_rows = kind > ScalesOf::group;
    const bool alone = kind == ScalesOf::nested || kind == ScalesOf::columns;
    rank.size = alone || random.uniform() < 0.5 ? 1 : 2;
    rank.rank = static_cast<int>(random.between(0, rank.size - 1));
    if (block && random.uniform() < 0.5) {
      using Size = std::pair<int64_t, int64_t>;
      std::tie(block_rows, block_cols) = one_of({Size{64, 64}, Size{1, 128}, Size{48, 96}});
    }
    // Ranks have whole runs of grouped codes; parts of a tensor begin anywhere.
    const int64_t unit = group || by_rows || (block && rank.size > 1) ? 32 : 2, most = 160 / unit;
    config["num_hidden_layers"] = 1;
    config["num_key_value_heads"] = 2;
    config["num_attention_heads"] = 2 * random.between(1, 2);
    config["head_dim"] = unit * random.between(1, most);
    config["intermediate_size"] = 2 * unit * random.between(1, most);
    config["hidden_size"] = group || by_rows ? 32 * random.between(1, 9) : random.between(100, 300);
    stored = test::tiny_tensors(config, random);
    const std::string attention = "model.layers.0.self_attn.", mlp = "model.layers.0.mlp.";
    const int64_t dim = config["head_dim"].get<int64_t>();
    const int64_t q = config["num_attention_heads"].get<int64_t>() / 2 * dim;
    if (random.uniform() < 0.6) {
      fusions.push_back(
          {{attention + "q_proj", attention + "k_proj", attention + "v_proj"}, attention + "qkv"});
      if (random.uniform() < 0.5) fusions.back().groups = {q, dim, dim};
    }
    if (random.uniform() < 0.6) {
      fusions.push_back({{mlp + "gate_proj", mlp + "up_proj"}, mlp + "gate_up"});
      const double how = random.uniform();
      if (how < 0.5) fusions.back().groups = {1, 1};
      fusions.back().stacked = (group || block) && how >= 0.5;
    }
    for (Fusion& f : fusions) f.transposed = group && random.uniform() < 0.5;  // its elements are
    for (const Fusion& f : fusions) fuse(f, stored);
    for (size_t t = 0, tensors = stored.size(); t < tensors; ++t) {
      if (stored[t].name.find("layers") == std::string::npos || stored[t].shape.size() < 2)
        continue;
      by_rows ? quantize_rows(t) : group ? quantize_groups(t) : quantize(t);
    }
    std::ranges::shuffle(stored, random.engine());
    config["quantization_config"] = {{"quant_method", group ? "mxfp4" : "fp8"}};
    if (block) config["quantization_config"]["weight_block_size"] = {block_rows, block_cols};
    if (kind == ScalesOf::zeros)
      config["quantization_config"] = {
          {"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"all", {{"weights", {{"group_size", 32}}}}}}}};
    if (kind == ScalesOf::nested) config["quantization_config"]["quant_method"] = "bitsandbytes";
    if (kind == ScalesOf::columns)
      config["quantization_config"] = {
          {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", true}};
    if (kind == ScalesOf::global)
      config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
    test::write_checkpoint(dir.path(), config, stored, static_cast<size_t>(random.between(1, 3)));
    index.emplace(io::open_checkpoint(dir.path()));
    const uint64_t slot = static_cast<uint64_t>(random.between(5, 14)) * 4096;
    staging = {slot, slot * static_cast<uint64_t>(random.between(4, 9))};
    options.reader =
        one_of({io::ReaderKind::automatic, io::ReaderKind::pread, io::ReaderKind::mmap});
    options.threads = static_cast<int>(random.between(1, 3));
    model = model_of(rank);
  }

  Model model_of(Rank of) const {
    Model made = build_model(dir.path(), of);
    for (const Fusion& f : fusions) fuse(f, made);
    return made;
  }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random.between(0, std::ssize(values) - 1)];
  }

  // Gives a matrix random codes, and scales behind it.
  void quantize(size_t at) {
    TinyTensor& codes = stored[at];
    const int64_t outputs = codes.shape.end()[-2], inputs = codes.shape.back();
    const bool stacked = codes.shape.size() == 3;
    codes.dtype = "F8_E4M3";
    codes.bytes.resize(static_cast<size_t>((stacked ? codes.shape[0] : 1) * outputs * inputs));
    for (char& c : codes.bytes) {
      c = static_cast<char>(random.between(0, 255));
      if ((c & 0x7f) == 0x7f) c = 0;  // no NaN
    }
    TinyTensor scales{codes.name + "_scale", {}, {}, {}};
    scales.dtype = one_of({"F32", "BF16", "F16"});
    if (scales_of == ScalesOf::row) scales.shape = {outputs, 1};
    if (scales_of == ScalesOf::block) {
      scales.name += "_inv";
      scales.shape = {ceil_div(outputs, block_rows), ceil_div(inputs, block_cols)};
      if (stacked) scales.shape.insert(scales.shape.begin(), codes.shape[0]);
      if (random.uniform() < 0.3) scales.dtype = "F8_E8M0";
    }
    int64_t count = 1;
    for (int64_t size : scales.shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      const float value = std::abs(random.normal(0.1f)) + 0.01f;
      const uint16_t half = scales.dtype == "F16" ? float_to_f16(value) : float_to_bf16(value);
      if (scales.dtype == "F32") scales.bytes.append(reinterpret_cast<const char*>(&value), 4);
      if (scales.dtype == "F8_E8M0")
        scales.bytes.push_back(static_cast<char>(random.between(110, 130)));
      if (scales.dtype == "F16" || scales.dtype == "BF16")
        scales.bytes.append(reinterpret_cast<const char*>(&half), 2);
    }
    stored.push_back(std::move(scales));
  }

  // Gives a matrix, or a stack of them, four-bit floats with powers of two.
  void quantize_groups(size_t at) {
    TinyTensor& codes = stored[at];
    const auto f = std::ranges::find_if(
        fusions, [&](const Fusion& fusion) { return codes.name == fusion.into + ".weight"; });
    if (f != fusions.end() && f->transposed)
      std::swap(codes.shape.end()[-1], codes.shape.end()[-2]);
    codes.shape.back() /= 32;
    TinyTensor scales{codes.name + "_scales", codes.shape, "U8", {}};
    codes.name += "_blocks";
    codes.dtype = "U8";
    codes.shape.push_back(16);
    int64_t count = 1;
    for (int64_t size : scales.shape) count *= size;
    codes.bytes.resize(static_cast<size_t>(count * 16));
    for (char& c : codes.bytes) c = static_cast<char>(random.between(0, 255));
    for (int64_t i = 0; i < count; ++i)
      scales.bytes.push_back(static_cast<char>(random.between(110, 130)));
    stored.push_back(std::move(scales));
  }

  std::string random_bytes(int64_t count, int64_t most = 255) {
    std::string bytes(static_cast<size_t>(count), '\0');
    for (char& c : bytes) c = static_cast<char>(random.between(0, most));
    return bytes;
  }
  std::string random_floats(int64_t count) {
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) {
      const float value = std::abs(random.normal(0.1f)) + 0.01f;
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return bytes;
  }

  static int code_at(const std::string& codes, int64_t i, bool high_first) {
    return static_cast<uint8_t>(codes[static_cast<size_t>(i / 2)]) >>
               ((i % 2 == 0) == high_first ? 4 : 0) &
           15;
  }
  static float float_at(const TinyTensor& tensor, int64_t i) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * 4, sizeof value);
    return value;
  }
  static uint8_t byte_at(const TinyTensor& tensor, int64_t i) {
    return static_cast<uint8_t>(tensor.bytes[static_cast<size_t>(i)]);
  }

  // Gives a matrix codes with planes by rows; `elements` has what they mean.
  void quantize_rows(size_t at) {
    const int64_t outputs = stored[at].shape[0], inputs = stored[at].shape[1];
    elements[stored[at].name].resize(static_cast<size_t>(outputs * inputs));
    const std::string codes = random_bytes(outputs * inputs / 2);
    if (scales_of == ScalesOf::zeros) return add_zeros(at, outputs, inputs, codes);
    if (scales_of == ScalesOf::global) return add_global_scale(at, outputs, inputs, codes);
    if (scales_of == ScalesOf::columns) return add_columns(at, outputs, inputs, codes);
    add_nested_scales(at, outputs, inputs, codes);
  }
  void set_elements(const std::string& weight, auto&& value) {
    std::vector<float>& all = elements[weight];
    for (int64_t i = 0; i < std::ssize(all); ++i) all[static_cast<size_t>(i)] = value(i);
  }

  void add_zeros(size_t at, int64_t outputs, int64_t inputs, const std::string& codes) {
    const std::string weight = stored[at].name, stem = weight.substr(0, weight.size() - 7);
    const int64_t groups = inputs / 32, words = ceil_div(outputs, int64_t{8});
    const TinyTensor zeros{
        stem + ".weight_zero_point", {words, groups}, "I32", random_bytes(words * groups * 4)};
    const TinyTensor scales{
        stem + ".weight_scale", {outputs, groups}, "F32", random_floats(outputs * groups)};
    set_elements(weight, [&](int64_t i) {
      const int64_t r = i / inputs, g = i % inputs / 32;
      const int byte = byte_at(zeros, (r / 8 * groups + g) * 4 + r % 8 / 2);
      return static_cast<float>(code_at(codes, i, false) - (byte >> (r % 2 * 4) & 15)) *
             float_at(scales, r * groups + g);
    });
    stored[at] = {stem + ".weight_packed", {outputs, inputs / 8}, "I32", codes};
    stored.insert(stored.end(), {zeros, scales});
  }

  void add_global_scale(size_t at, int64_t outputs, int64_t inputs, const std::string& codes) {
    const std::string weight = stored[at].name;
    const TinyTensor scales{weight + "_scale",
                            {outputs, inputs / 16},
                            "F8_E4M3",
                            random_bytes(outputs * inputs / 16, 0x7e)};
    const TinyTensor global{weight + "_scale_2", {}, "F32", random_floats(1)};
    set_elements(weight, [&](int64_t i) {
      return e2m1_to_float(static_cast<uint32_t>(code_at(codes, i, false))) *
             (e4m3_to_float(byte_at(scales, i / 16)) * float_at(global, 0));
    });
    stored[at] = {weight, {outputs, inputs / 2}, "U8", codes};
    stored.insert(stored.end(), {scales, global});
  }

  // Down a column of words, and along a row of zeros, which are one less, without what is above
  // four bits.
  void add_columns(size_t at, int64_t outputs, int64_t inputs, const std::string& codes) {
    const std::string weight = stored[at].name, stem = weight.substr(0, weight.size() - 7);
    const int64_t groups = inputs / 32;
    const TinyTensor zeros{
        stem + ".qzeros", {groups, outputs / 8}, "I32", random_bytes(groups * outputs / 2)};
    const TinyTensor scales{
        stem + ".scales", {groups, outputs}, "F32", random_floats(groups * outputs)};
    std::vector<int32_t> group_of(static_cast<size_t>(inputs));
    for (int64_t i = 0; i < inputs; ++i)
      group_of[static_cast<size_t>(i)] = static_cast<int32_t>(i / 32);
    std::ranges::shuffle(group_of, random.engine());
    set_elements(weight, [&](int64_t i) {
      const int64_t o = i / inputs, input = i % inputs;
      const int64_t at_scale = group_of[static_cast<size_t>(input)] * outputs + o;
      const int64_t at_code = (input / 8 * outputs + o) * 8 + input % 8;
      return static_cast<float>(code_at(codes, at_code, false) -
                                (code_at(zeros.bytes, at_scale, false) + 1) % 16) *
             float_at(scales, at_scale);
    });
    stored[at] = {stem + ".qweight", {inputs / 8, outputs}, "I32", codes};
    const auto* bytes = reinterpret_cast<const char*>(group_of.data());
    stored.push_back({stem + ".g_idx", {inputs}, "I32", std::string(bytes, group_of.size() * 4)});
    stored.insert(stored.end(), {zeros, scales});
  }

  void add_nested_scales(size_t at, int64_t outputs, int64_t inputs, const std::string& codes) {
    const std::string weight = stored[at].name;
    const int64_t blocks = ceil_div(outputs * inputs, int64_t{64});
    const int64_t outers = ceil_div(blocks, int64_t{256});
    const TinyTensor absmax{weight + ".absmax", {blocks}, "U8", random_bytes(blocks)};
    const TinyTensor nested{weight + ".nested_absmax", {outers}, "F32", random_floats(outers)};
    const TinyTensor map{weight + ".quant_map", {16}, "F32", random_floats(16)};
    const TinyTensor scales{weight + ".nested_quant_map", {256}, "F32", random_floats(256)};
    const std::string json = R"({"blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.25})";
    const TinyTensor state{
        weight + ".quant_state.bitsandbytes__nf4", {std::ssize(json)}, "U8", json};
    set_elements(weight, [&](int64_t i) {
      const int64_t block = i / 64;
      const float product =
          float_at(scales, byte_at(absmax, block)) * float_at(nested, block / 256);
      return float_at(map, code_at(codes, i, true)) * (product + 0.25f);
    });
    stored[at] = {weight, {outputs * inputs / 2, 1}, "U8", codes};
    stored.insert(stored.end(), {absmax, nested, map, scales, state});
  }

  std::vector<float> row_of_groups(const Piece& piece, int64_t output) const {
    const TinyTensor& scales = *find(piece.source + "_scales");
    const int64_t outputs = scales.shape.end()[-2];
    const int64_t row = piece.view.index.value_or(0) * outputs + output;
    std::vector<float> values;
    for (int64_t c = piece.cut.col; c < piece.cut.col + piece.cut.cols; ++c) {
      const int64_t at = row * scales.shape.back() * 32 + c;
      const auto byte =
          static_cast<uint8_t>(find(piece.source + "_blocks")->bytes[static_cast<size_t>(at / 2)]);
      values.push_back(
          e2m1_to_float(byte >> (at % 2 * 4) & 15) *
          e8m0_to_float(static_cast<uint8_t>(scales.bytes[static_cast<size_t>(at / 32)])));
    }
    return values;
  }

  const TinyTensor* find(const std::string& name) const {
    const auto found = std::ranges::find(stored, name, &TinyTensor::name);
    return found == stored.end() ? nullptr : &*found;
  }

  float scale(const TinyTensor& scales, int64_t at) const {
    const char* bytes = scales.bytes.data();
    if (scales.dtype == "F8_E8M0") return e8m0_to_float(static_cast<uint8_t>(bytes[at]));
    if (scales.dtype == "F32") {
      float value;
      std::memcpy(&value, bytes + at * 4, sizeof value);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, bytes + at * 2, sizeof half);
    return scales.dtype == "F16" ? f16_to_float(half) : bf16_to_float(half);
  }

  // A stored output, with the inputs that a rank has.
  std::vector<float> row(const Piece& piece, int64_t output) const {
    if (scales_of == ScalesOf::group) return row_of_groups(piece, output);
    if (const auto found = elements.find(piece.source); found != elements.end()) {
      const auto first = found->second.begin() + output * piece.cols + piece.cut.col;
      return {first, first + piece.cut.cols};
    }
    const TinyTensor& codes = *find(piece.source);
    const bool block = scales_of == ScalesOf::block;
    const TinyTensor& scales = *find(piece.source + (block ? "_scale_inv" : "_scale"));
    const int64_t member = piece.view.index.value_or(0), inputs = codes.shape.back();
    const int64_t first = (member * codes.shape.end()[-2] + output) * inputs;
    std::vector<float> values;
    for (int64_t c = piece.cut.col; c < piece.cut.col + piece.cut.cols; ++c) {
      int64_t at = scales_of == ScalesOf::tensor ? 0 : output;
      if (block)
        at = (member * scales.shape.end()[-2] + output / block_rows) * scales.shape.back() +
             c / block_cols;
      const auto code = static_cast<uint8_t>(codes.bytes[static_cast<size_t>(first + c)]);
      values.push_back(e4m3_to_float(code) * scale(scales, at));
    }
    return values;
  }

  bool is_quantized(const Param& param) const {
    const std::string& source = param.pieces.front().source;
    if (find(source + "_blocks") != nullptr || elements.contains(source)) return true;
    return find(source) != nullptr && find(source)->dtype == "F8_E4M3";
  }
};

// Rows [first, first + weight.rows) of a parameter.
void expect_rows(const CodesModel& m, const Param& param, const Weight& weight, int64_t first) {
  std::vector<float> found(static_cast<size_t>(param.cols));
  for (const Piece& piece : param.pieces) {
    for (int64_t r = 0; r < piece.cut.rows; ++r) {
      const int64_t at = piece.offset + r - first;
      if (at < 0 || at >= weight.rows) continue;
      decode_row(weight, at, found.data());
      ASSERT_EQ(found, m.row(piece, piece.stored_output(piece.cut.row + r)))
          << param.path << ", row " << piece.offset + r;
    }
  }
}

class LoadedPlanes : public testing::Test {
 protected:
  std::vector<Resident> load(const CodesModel& m, const ReadPlan& plan) {
    LoadProgress progress;
    LoadReport report;
    return Streamer(plan, *m.index, *device_, *encoder_, ledger_, measured_, m.options)
        .load_all(report, progress, {});
  }

  std::unique_ptr<Device> device_ = make_host_device();
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
  Ledger ledger_;
  Measured measured_;
};

class Planes : public LoadedPlanes, public testing::WithParamInterface<ScalesOf> {};

std::string name_of(const testing::TestParamInfo<ScalesOf>& info) {
  constexpr const char* kNames[] = {"one", "rows", "blocks", "groups", "zeros", "nested", "global"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Scales, Planes,
                         testing::Values(ScalesOf::tensor, ScalesOf::row, ScalesOf::block,
                                         ScalesOf::group, ScalesOf::zeros, ScalesOf::nested,
                                         ScalesOf::global),
                         name_of);

TEST_P(Planes, ResidentAndSweptRowsAreCodesTimesScales) {
  size_t several = 0, ranks = 0, in_runs = 0;
  const uint64_t models = test::is_brief() ? 4 : 12;
  for (uint64_t seed = 1; seed <= models; ++seed) {
    SCOPED_TRACE(testing::Message() << "model of seed " << seed);
    CodesModel m(seed, GetParam());
    QuantizeRequest request;
    request.matrix_layout = m.one_of({MatrixLayout::packed, MatrixLayout::by_codes});
    const ReadPlan all = lay_out(m.model, *m.index, request);
    Placement placement(all.params.size(), Tier::device);
    for (size_t i = 0; i < all.params.size(); ++i) {
      if (m.is_quantized(*all.params[i].param) && m.random.uniform() < 0.7)
        placement[i] = Tier::disk;
    }
    if (request.matrix_layout == MatrixLayout::by_codes) placement = {};
    const ReadPlan plan = compile(m.model, *m.index, request, m.staging, placement);
    const std::vector<Resident> residents = load(m, plan);
    TileStream stream(plan, *m.index, *device_, *encoder_, ledger_, measured_, m.options,
                      std::stop_token());
    for (int pass = 0; pass < 2; ++pass) {
      for (const ParamPlan& p : plan.params) {
        const Param& param = *p.param;
        if (!m.is_quantized(param)) continue;
        if (!p.streamed()) expect_rows(m, param, param.value, 0);
        for (int64_t row = 0; p.streamed() && row < param.rows;) {
          const WeightTile tile = stream.tile(param, row, host_stream());
          expect_rows(m, param, tile.weight, tile.first_row);
          row = tile.first_row + tile.weight.rows;
        }
        if (HasFatalFailure()) return;
        in_runs += param.pieces.front().runs() > 1;
      }
    }
    several += std::ranges::any_of(plan.sweep, [](const auto& t) { return t.tiles > 1; });
    ranks += m.rank.size > 1;
  }
  if (test::is_brief()) return;
  EXPECT_GT(several, 0u);
  EXPECT_TRUE(ranks > 0 || GetParam() == ScalesOf::nested);  // no border of its groups
  EXPECT_GT(in_runs, 0u);
}

// Columns change places when the last of a matrix's spans has come, whichever that is.
TEST_F(LoadedPlanes, ColumnsOfManyReadsComeIntoTheirOrder) {
  size_t several = 0, in_runs = 0;
  const uint64_t models = test::is_brief() ? 4 : 24;
  for (uint64_t seed = 1; seed <= models; ++seed) {
    SCOPED_TRACE(testing::Message() << "model of seed " << seed);
    CodesModel m(seed, ScalesOf::columns);
    QuantizeRequest request;
    request.matrix_layout = m.one_of({MatrixLayout::packed, MatrixLayout::by_codes});
    const ReadPlan plan = compile(m.model, *m.index, request, m.staging);
    const std::vector<Resident> residents = load(m, plan);
    for (const ParamPlan& p : plan.params) {
      if (!m.is_quantized(*p.param)) continue;
      expect_rows(m, *p.param, p.param->value, 0);
      in_runs += p.param->pieces.front().runs() > 1;
    }
    if (HasFatalFailure()) return;
    for (uint32_t t = 0; t < plan.tensors.size(); ++t)
      several +=
          plan.tensors[t].orders_columns() && std::ranges::count(plan.moves, t, &Move::tensor) > 1;
  }
  EXPECT_GT(several, 0u);
  EXPECT_TRUE(in_runs > 0 || test::is_brief());
}

TEST_P(Planes, RanksThatLoadTogetherHaveCodesTimesScales) {
  size_t exchanged = 0, several = 0;
  const uint64_t models = test::is_brief() ? 4 : 12;
  for (uint64_t seed = 1; seed <= models; ++seed) {
    SCOPED_TRACE(testing::Message() << "model of seed " << seed);
    CodesModel m(seed, GetParam());
    if (m.rank.size == 1) continue;
    ++several;
    test::LoadedRanks ranks;
    for (int r = 0; r < m.rank.size; ++r) {
      ranks.push_back(std::make_unique<test::LoadedRank>(m.model_of({r, m.rank.size})));
      ranks.back()->plan = compile(ranks.back()->model, *m.index, {}, m.staging);
    }
    test::load_together(ranks, *m.index, m.options);
    for (const std::unique_ptr<test::LoadedRank>& rank : ranks) {
      for (const ParamPlan& p : rank->plan.params) {
        if (m.is_quantized(*p.param)) expect_rows(m, *p.param, p.param->value, 0);
        if (HasFatalFailure()) return;
      }
      exchanged += rank->exchanged(
          [&](const TensorPlan& t) { return m.is_quantized(*rank->plan.params[t.param].param); });
    }
  }
  EXPECT_EQ(exchanged > 0, several > 0);
}

}  // namespace
}  // namespace sluice
