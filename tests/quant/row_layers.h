// Random layers of grouped codes that checkpoints store by rows, for tests: their tensors, as
// planes of quant/row_codes.h, and what they mean, computed from the stored bytes.
#pragma once

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "quant/groups.h"
#include "quant/row_codes.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"

namespace sluice::test {

struct RowLayer {
  RowLayer(std::string kind, WeightFormat in_memory, int64_t row_count, int64_t col_count,
           Random& random)
      : name(std::move(kind)),
        format(in_memory),
        rows(row_count),
        cols(col_count),
        random_(random) {
    format.dtype = DType::u8;
    format.scales = ScaleKind::grouped;
    code_bytes = ceil_div(cols * format.bits, int64_t{32}) * 4;
    std::vector<std::byte> codes(static_cast<size_t>(rows * code_bytes));
    for (std::byte& b : codes) b = static_cast<std::byte>(random.between(0, 255));
    if (format.table == CodeTable::e4m3)
      for (std::byte& b : codes) b &= std::byte{0xbe};  // no NaN
    EncodeArgs args;
    args.stored = DType::u8;
    args.source_stride = code_bytes;
    add(Plane::codes, std::move(codes), args);
  }

  void add(Plane plane, std::vector<std::byte> bytes, EncodeArgs args) {
    args.plane = plane;
    args.rows = rows;
    stored.push_back(std::move(bytes));
    planes.push_back(args);
  }
  // Small positive floats.
  std::vector<std::byte> floats(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = std::abs(random_.normal(0.02f)) + 0.01f;
    const auto* from = reinterpret_cast<const std::byte*>(values.data());
    return {from, from + count * 4};
  }
  std::vector<std::byte> bytes(int64_t count, int low, int high) {
    std::vector<std::byte> values(static_cast<size_t>(count));
    for (std::byte& b : values) b = static_cast<std::byte>(random_.between(low, high));
    return values;
  }

  StoredWeight weight(WeightLayout layout,
                      const std::function<EncodeStats(const EncodeArgs&)>& encode) const {
    WeightFormat in_layout = format;
    in_layout.layout = layout;
    StoredWeight w(in_layout, rows, cols);
    for (size_t i = 0; i < planes.size(); ++i) {
      EncodeArgs args = planes[i];
      args.to = w.weight;
      args.source = stored[i].data();
      args.source_cols = args.plane == Plane::codes ? 0 : cols;
      if (!tables.empty()) args.tables = tables.data();
      if (!order.empty()) args.order = order.data();
      check(encode(args).not_finite == 0, "finite numbers");
    }
    return w;
  }

  uint32_t code(int64_t row, int64_t col) const {
    const CodeWords& words = planes[0].words;
    if (words.sharing > 1) {
      const auto byte = at<uint8_t>(0, row * code_bytes + col);
      const int place = words.high_first ? words.sharing - 1 - words.place : words.place;
      return static_cast<uint32_t>(byte) >> place * format.bits & ((1u << format.bits) - 1);
    }
    const int64_t each = words.of_word;
    const int64_t bit = each > 0 ? col / each * 32 + col % each * format.bits : col * format.bits;
    uint32_t code = 0;
    for (int i = 0; i < format.bits; ++i) {
      const int64_t at = row * code_bytes + (bit + i) / 8, of_byte = (bit + i) % 8;
      const auto byte = std::to_integer<uint32_t>(stored[0][static_cast<size_t>(at)]);
      code |= (byte >> (words.high_first ? of_byte ^ 4 : of_byte) & 1) << i;
    }
    return code;
  }
  template <class T>
  T at(size_t plane, int64_t index) const {
    T value;
    std::memcpy(&value, stored[plane].data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  float value(int64_t row, int64_t col) const { return value_of(*this, row, col); }

  std::string name;
  WeightFormat format;
  int64_t rows, cols, code_bytes;
  std::vector<std::vector<std::byte>> stored;
  std::vector<EncodeArgs> planes;
  std::vector<float> tables;
  std::vector<int32_t> order;
  std::function<float(const RowLayer&, int64_t, int64_t)> value_of;

 private:
  Random& random_;
};

// Integers with zeros along columns, as compressed-tensors packs them; or symmetric.
inline RowLayer integer_layer(int bits, int64_t group, bool symmetric, int64_t rows, int64_t cols,
                              Random& random) {
  WeightFormat f{.scale_cols = group};
  f.bits = bits;
  f.symmetric = symmetric;
  f.zero_base = symmetric ? 1 << (bits - 1) : 0;
  RowLayer layer("integers", f, rows, cols, random);
  const int64_t groups = ceil_div(cols, group), sharing = 32 / bits;
  EncodeArgs args;
  args.stored = DType::f32;
  args.source_stride = groups * 4;
  layer.add(Plane::scales, layer.floats(rows * groups), args);
  args.stored = DType::i32;
  args.sharing = sharing;
  if (!symmetric)
    layer.add(Plane::zeros, layer.bytes(ceil_div(rows, sharing) * groups * 4, 0, 255), args);
  layer.value_of = [=](const RowLayer& l, int64_t r, int64_t c) {
    const int64_t g = c / group;
    const int zero =
        symmetric
            ? 1 << (bits - 1)
            : static_cast<int>(l.at<uint32_t>(2, r / sharing * groups + g) >> (r % sharing * bits) &
                               ((1u << bits) - 1));
    return static_cast<float>(static_cast<int>(l.code(r, c)) - zero) *
           l.at<float>(1, r * groups + g);
  };
  return layer;
}

// Integers in words of 32 bits whose upper bits are left over.
inline RowLayer padded_layer(int bits, int64_t rows, int64_t cols, Random& random) {
  RowLayer layer = integer_layer(bits, 32, true, rows, cols, random);
  layer.name = "integers in padded words";
  const int of_word = 32 / bits;
  layer.planes[0].words.of_word = of_word;
  layer.planes[0].source_stride = layer.code_bytes = ceil_div(cols, int64_t{of_word}) * 4;
  layer.stored[0] = layer.bytes(rows * layer.code_bytes, 0, 255);
  return layer;
}

// Integers with zeros that are floats of 16 bits: code * scale + zero, as MLX has them, or (code -
// zero) * scale, as HQQ has them.
inline RowLayer float_zeros_layer(int bits, int64_t group, bool added, DType type, int64_t rows,
                                  int64_t cols, Random& random) {
  WeightFormat f{.scale_cols = group};
  f.bits = bits;
  f.scale_type = f.zero_type = type;
  f.adds_zeros = added;
  RowLayer layer("integers with zeros that are floats", f, rows, cols, random);
  const int64_t groups = ceil_div(cols, group);
  const auto halves = [&](float about) {
    std::vector<uint16_t> values(static_cast<size_t>(rows * groups));
    for (uint16_t& v : values) {
      const float value = about + random.normal(about / 8);
      v = type == DType::bf16 ? float_to_bf16(value) : float_to_f16(value);
    }
    const auto* from = reinterpret_cast<const std::byte*>(values.data());
    return std::vector<std::byte>{from, from + rows * groups * 2};
  };
  EncodeArgs args;
  args.stored = type;
  args.source_stride = groups * 2;
  layer.add(Plane::scales, halves(0.02f), args);
  layer.add(Plane::zeros, halves(added ? -0.1f : static_cast<float>(1 << bits) / 2), args);
  layer.value_of = [=](const RowLayer& l, int64_t r, int64_t c) {
    const auto number = [&](size_t plane) {
      const auto half = l.at<uint16_t>(plane, r * groups + c / group);
      return type == DType::bf16 ? bf16_to_float(half) : f16_to_float(half);
    };
    const auto code = static_cast<float>(l.code(r, c));
    return added ? code * number(1) + number(2) : (code - number(2)) * number(1);
  };
  return layer;
}

// Integers with a sign and zeros that are added, where numbers of a group lie side by side, as
// torchao has them.
inline RowLayer across_layer(int64_t group, int64_t rows, int64_t cols, Random& random) {
  RowLayer layer = float_zeros_layer(4, group, true, DType::bf16, rows, cols, random);
  layer.name = "integers with numbers across";
  layer.format.zero_base = 8;
  layer.planes[0].words.is_signed = true;
  for (size_t i : {1, 2}) {
    layer.planes[i].sharing = 0;
    layer.planes[i].across = rows;
  }
  layer.value_of = [=](const RowLayer& l, int64_t r, int64_t c) {
    const auto number = [&](size_t plane) {
      return bf16_to_float(l.at<uint16_t>(plane, c / group * rows + r));
    };
    const int code = static_cast<int>(l.code(r, c) ^ 8) - 8;
    return static_cast<float>(code) * number(1) + number(2);
  };
  return layer;
}

// The same, of codes that share their bytes with those of other outputs, as HQQ's do.
inline RowLayer shared_layer(int bits, int place, int64_t group, int64_t rows, int64_t cols,
                             Random& random) {
  RowLayer layer = float_zeros_layer(bits, group, false, DType::bf16, rows, cols, random);
  layer.name = "integers in shared bytes";
  layer.planes[0].words.sharing = 8 / bits;
  layer.planes[0].words.place = place;
  layer.planes[0].words.high_first = true;
  layer.planes[0].source_stride = layer.code_bytes = cols;
  layer.stored[0] = layer.bytes(rows * cols, 0, 255);
  return layer;
}

// -1, 0 and 1 in shared bytes, less what one number of all divides, as BitNet has them.
inline RowLayer ternary_layer(int place, int64_t rows, int64_t cols, Random& random) {
  WeightFormat f{.scale_cols = round_to(cols, int64_t{kRunCols})};
  f.bits = 2;
  f.symmetric = true;
  f.zero_base = 1;
  RowLayer layer("ternary codes", f, rows, cols, random);
  layer.planes[0].words.sharing = 4;
  layer.planes[0].words.place = place;
  layer.planes[0].source_stride = layer.code_bytes = cols;
  layer.stored[0] = layer.bytes(rows * cols, 0, 255);
  EncodeArgs args;
  args.stored = DType::bf16;
  args.sharing = 0;
  args.inverse = true;
  layer.add(Plane::scales, layer.bytes(2, 0x41, 0x42), args);
  layer.value_of = [](const RowLayer& l, int64_t r, int64_t c) {
    const float scale = 1 / bf16_to_float(l.at<uint16_t>(1, 0));
    return (static_cast<float>(l.code(r, c)) - 1) * scale;
  };
  return layer;
}

// Bytes with a sign and a number for each row, as bitsandbytes has them.
inline RowLayer signed_layer(int64_t rows, int64_t cols, Random& random) {
  WeightFormat f{.scale_cols = round_to(cols, int64_t{kRunCols})};
  f.bits = 8;
  f.symmetric = true;
  f.zero_base = 128;
  RowLayer layer("signed bytes", f, rows, cols, random);
  layer.planes[0].words.is_signed = true;
  EncodeArgs args;
  args.stored = DType::f32;
  args.source_stride = 4;
  args.factor = 1.0f / 127;
  layer.add(Plane::scales, layer.floats(rows), args);
  layer.value_of = [](const RowLayer& l, int64_t r, int64_t c) {
    const float scale = l.at<float>(1, r) * (1.0f / 127);
    return static_cast<float>(static_cast<int8_t>(l.code(r, c))) * scale;
  };
  return layer;
}

// Floats of four bits with E4M3 scales and one for all; floats of 4 or 8 bits with powers of two.
inline RowLayer float_layer(CodeTable table, Outer outer, int64_t rows, int64_t cols,
                            Random& random) {
  const int64_t group = outer == Outer::none ? 32 : 16, groups = ceil_div(cols, group);
  WeightFormat f{.scale_cols = group};
  f.bits = table == CodeTable::e2m1 ? 4 : 8;
  f.table = table;
  f.outer = outer;
  f.scale_type = outer == Outer::none ? DType::f8_e8m0 : DType::f8_e4m3;
  RowLayer layer("floats", f, rows, cols, random);
  EncodeArgs args;
  args.stored = f.scale_type;
  args.source_stride = groups;
  layer.add(Plane::scales,
            outer == Outer::none ? layer.bytes(rows * groups, 118, 124)
                                 : layer.bytes(rows * groups, 0, 0x7e),
            args);
  args.stored = DType::f32;
  args.sharing = 0;
  const double factor = args.factor = outer == Outer::multiplies ? 1.0 / 2688 : 1;  // as MLX's
  if (outer != Outer::none) layer.add(Plane::outers, layer.floats(1), args);
  layer.value_of = [=](const RowLayer& l, int64_t r, int64_t c) {
    const auto code = static_cast<uint8_t>(l.code(r, c));
    const auto scale = l.at<uint8_t>(1, r * groups + c / group);
    const float value = table == CodeTable::e2m1 ? e2m1_to_float(code) : e4m3_to_float(code);
    if (outer == Outer::none) return value * e8m0_to_float(scale);
    const float by = static_cast<float>(l.at<float>(2, 0) * factor);
    const float all =
        outer == Outer::divides ? e4m3_to_float(scale) / by : e4m3_to_float(scale) * by;
    return value * all;
  };
  return layer;
}

// Four bits of a table with a scale for each 64 elements whatever their rows, as bitsandbytes has
// them; nested: codes of a table, with a number for each 16384 elements.
inline RowLayer table_layer(bool nested, int64_t rows, int64_t cols, Random& random) {
  constexpr int64_t kBlock = 64, kOuter = kBlock * 256;
  WeightFormat f{.scale_cols = std::gcd(kBlock, cols)};
  f.bits = 4;
  f.table = CodeTable::own;
  f.scale_type = nested ? DType::u8 : DType::f32;
  if (nested) {
    f.outer = Outer::multiplies;
    f.outer_groups = static_cast<int32_t>(std::gcd(kOuter, cols) / f.scale_cols);
  }
  RowLayer layer(nested ? "nested tables" : "tables", f, rows, cols, random);
  layer.planes[0].words.high_first = true;
  layer.planes[0].source_stride = layer.code_bytes = cols / 2;
  EncodeArgs args;
  args.stored = f.scale_type;
  args.flat = kBlock;
  args.sharing = kBlock / std::gcd(kBlock, cols);
  const int64_t blocks = ceil_div(rows * cols, kBlock);
  layer.add(Plane::scales, nested ? layer.bytes(blocks, 0, 255) : layer.floats(blocks), args);
  args.stored = DType::f32;
  args.flat = kOuter;
  args.sharing = kOuter / std::gcd(kOuter, cols);
  if (nested) layer.add(Plane::outers, layer.floats(ceil_div(rows * cols, kOuter)), args);
  for (int64_t i = 0; i < kCodeValues + (nested ? kScaleValues + 1 : 0); ++i)
    layer.tables.push_back(random.normal(0.5f));
  layer.value_of = [=](const RowLayer& l, int64_t r, int64_t c) {
    const int64_t at = r * cols + c;
    float scale = 0;
    if (nested) {
      scale = l.tables[static_cast<size_t>(kCodeValues + l.at<uint8_t>(1, at / kBlock))] *
              l.at<float>(2, at / kOuter);
      scale += l.tables.back();
    } else {
      scale = l.at<float>(1, at / kBlock);
    }
    return l.tables[l.code(r, c)] * scale;
  };
  return layer;
}

// Columns of groups that an order says, as `actorder` has them.
inline RowLayer ordered_layer(int64_t rows, int64_t cols, Random& random) {
  RowLayer layer = integer_layer(4, 32, true, rows, cols, random);
  layer.name = "ordered integers";
  layer.format.ordered = true;
  layer.order.resize(static_cast<size_t>(cols));
  std::iota(layer.order.begin(), layer.order.end(), 0);
  std::shuffle(layer.order.begin(), layer.order.end(), random.engine());
  std::vector<int32_t> places(layer.order.size());
  for (size_t k = 0; k < layer.order.size(); ++k)
    places[static_cast<size_t>(layer.order[k])] = static_cast<int32_t>(k);
  layer.value_of = [=](const RowLayer& l, int64_t r, int64_t c) {
    const float scale = l.at<float>(1, r * (cols / 32) + places[static_cast<size_t>(c)] / 32);
    return static_cast<float>(static_cast<int>(l.code(r, c)) - 8) * scale;
  };
  return layer;
}

}  // namespace sluice::test
