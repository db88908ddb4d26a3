#include "src/plan/host_rows.h"

#include <gtest/gtest.h>

#include "src/models/registry.h"
#include "src/plan/lay_out.h"
#include "tests/support/checkpoint.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

Rates rates_of(double host, double link) {
  Rates rates;
  rates.host.bytes_per_second = host;
  rates.link.bytes_per_second = link;
  return rates;
}

// A CPU takes as long for 16 rows as for one.
TEST(HostRows, TheBorderIsWhereTheLinkIsAsFast) {
  EXPECT_EQ(host_rows(rates_of(110e9, 55e9)), 32);
  EXPECT_EQ(host_rows(rates_of(60e9, 12e9)), 80);
  EXPECT_EQ(host_rows(rates_of(50e9, 55e9)), 0);
  EXPECT_EQ(host_rows(rates_of(1e12, 1e9)), kMostHostRows);
}

class HostRowsOf : public testing::Test {
 protected:
  void SetUp() override {
    test::Random random(1);
    const Json config = test::tiny_config();
    test::write_checkpoint(dir_.path(), config, test::tiny_tensors(config, random));
    model_ = build_model(dir_.path(), Rank{});
    index_.emplace(io::open_checkpoint(dir_.path()));
  }
  ReadPlan plan(MatrixLayout layout) {
    QuantizeRequest request{*find_quant_scheme("none")};
    request.matrix_layout = layout;
    return lay_out(model_, *index_, request);
  }
  static int64_t rows(const ReadPlan& plan, std::string_view path) {
    for (const ParamPlan& p : plan.params)
      if (p.param->path.ends_with(path)) return p.host_rows;
    return -1;
  }

  test::TempDir dir_;
  Model model_;
  std::optional<io::CheckpointIndex> index_;
};

TEST_F(HostRowsOf, ARuleForcesFewRowsAndExpertsCountByTheirUse) {
  ReadPlan all = plan(MatrixLayout::by_codes);
  for (ParamPlan& p : all.params)
    if (p.param->path.find("layers.1.mlp") != std::string::npos) p.param->share = 0.25;
  set_host_rows(all, 20, {});
  EXPECT_EQ(rows(all, "layers.0.mlp.down_proj.weight"), 20);
  EXPECT_EQ(rows(all, "layers.1.mlp.down_proj.weight"), 80);
  EXPECT_EQ(rows(all, "layers.0.input_layernorm.weight"), 0);
  set_host_rows(all, 0, parse_place_rules("layers.0=host,layers.*.mlp=cpu"));
  EXPECT_EQ(rows(all, "layers.0.mlp.down_proj.weight"), 0);
  EXPECT_EQ(rows(all, "layers.1.mlp.down_proj.weight"), 4 * kForcedHostRows);
}

// The format and the bytes of what the CPU multiplies are those of its panels.
TEST_F(HostRowsOf, HostMemoryHasPanelsOfAllFormats) {
  ReadPlan all = plan(MatrixLayout::by_codes);
  set_host_rows(all, 20, {});
  for (Tier tier : {Tier::device, Tier::host}) {
    set_placement(all, Placement(all.params.size(), tier));
    for (const ParamPlan& p : all.params) {
      const bool panels =
          p.format.layout == WeightLayout::packed || (tier == Tier::host && p.host_rows > 0);
      EXPECT_EQ(p.kept_format().layout == WeightLayout::packed, panels) << p.param->path;
      EXPECT_EQ(p.kept_storage(), storage_bytes(p.kept_format(), p.param->rows, p.param->cols));
    }
  }
  EXPECT_EQ(host_products(all, 8).rows, 8);
}

// A CPU's own matrices are packed, and there is nothing beside it.
TEST_F(HostRowsOf, NothingBesideACpu) {
  ReadPlan all = plan(MatrixLayout::packed);
  set_host_rows(all, 20, {});
  for (const ParamPlan& p : all.params) EXPECT_EQ(p.host_rows, 0) << p.param->path;
}

}  // namespace
}  // namespace sluice
