// Values of options that are more than a word: sizes, ids, biases, places.

#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/sampling_options.h"
#include "src/plan/place_rules.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(options) {
  std::string text(test::text_of(data, size));
  test::taken_or_refused([&] { format_size(parse_size("--memory", text, 16 * GiB)); });
  test::taken_or_refused(
      [&] { wanted_tier(parse_place_rules(text), "model.layers.3.mlp.down_proj.weight"); });
  test::taken_or_refused([&] { cli::parse_token_ids(text, "--ids"); });
  test::taken_or_refused([&] {
    cli::SamplingOptions sampling;
    sampling.logit_bias = text;
    cli::sampling_params(sampling);
  });
  return test::taken_or_refused([&] {
    cli::CommonOptions options;
    options.max_model_len = text;
    options.quantization = text;
    cli::model_options(options);
  });
}
