// The choice of what to quantize, and how: --quantization and --quantize-modules.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/matrix_layout.h"
#include "quant/scheme.h"
#include "src/nn/param.h"
#include "src/plan/name_pattern.h"

namespace sluice {

// Reads of a table of embeddings in a pass: one row for each token (looked_up), and all of it at
// the end if the table is also the head (tied).
enum class Table : uint8_t { none, looked_up, tied };
Table table_of(const Param& param);

// "*.down_proj=int8": a pattern, and what the weights become whose name it matches, or the name of
// the matrix that they are a part of. Names are the checkpoint's, without ".weight"; a head that is
// the table of embeddings is "lm_head" as well.
struct SchemeRule {
  NamePattern pattern;
  QuantScheme scheme;
  bool operator==(const SchemeRule&) const = default;
};

// Vectors of biases never are quantized.
struct QuantizeRequest {
  QuantScheme scheme;                            // for weights that no rule matches,
  std::set<ParamRole> roles{ParamRole::linear};  // if their role is one of these
  bool to_bf16 = false;  // round F32 and F16 matrices to BF16 (--dtype bfloat16); otherwise they
                         // stay what they are
  MatrixLayout matrix_layout = MatrixLayout::packed;  // of the device
  std::vector<SchemeRule> rules = {};                 // rules for matrices; the first match counts

  // The text of --quantization.
  std::string name() const;
  bool makes_groups() const;  // of some weights
  bool operator==(const QuantizeRequest&) const = default;
};

// Names for --quantization, in the order of the table: "none, fp8_per_tensor, ..., fp8".
std::string scheme_names();

// Parses "lm_head=none,*.down_proj=int8,fp8": rules, then an optional scheme for all other weights.
// Error(usage) for anything else.
QuantizeRequest parse_quantization(const std::string& text);

// The scheme of a piece of a parameter.
const QuantScheme& scheme_of(const QuantizeRequest& quantize, const Param& param,
                             const Piece& piece);
bool fits(const SchemeRule& rule, const Param& param, const Piece& piece);

}  // namespace sluice
