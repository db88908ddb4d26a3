// Questions about plans, as `plan` and `serve` ask them before a model is placed: an answer depends
// on nothing that was asked before, and no question changes the model.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/golden.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

std::string text_of(const MemoryPlan& plan) {
  std::string text = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {}:", static_cast<int>(plan.origin), plan.weights,
      plan.staging, plan.kv_cache, plan.activations, plan.workspace, plan.stream, plan.spill,
      plan.sweep_bytes, plan.buffers.staging.ring_bytes, plan.chunk_rows, plan.kv_blocks);
  for (Tier tier : plan.placement) text += static_cast<char>('0' + static_cast<int>(tier));
  return text;
}

std::string text_of(const ReadPlan& plan) {
  std::string text =
      fmt::format("{} {} {}\n", static_cast<int>(plan.origin), plan.slot_bytes, plan.ring_bytes);
  for (const TensorPlan& t : plan.tensors)
    text += fmt::format("{} {} {} {} {} {} {} {}\n", t.stored->name, t.stored->file, t.rows.begin,
                        t.rows.rows, t.rows.row_bytes, t.rows.group, t.transposed, t.others);
  for (const ParamPlan& p : plan.params)
    text +=
        fmt::format("{} {} {} {}\n", p.param->path, static_cast<int>(p.tier), p.offset, p.bytes);
  for (const Span& s : plan.spans)
    text += fmt::format("{} {} {} {} {}\n", s.file, s.offset, s.length, s.moves, s.measure);
  return text + fmt::format("{}", plan.sweep_tiles());
}

// The pieces that families and formats have made.
std::string pieces_of(const Planner& planner) {
  std::string text;
  planner.checkpoint().model().root->each_param([&](const Param& param) {
    for (const Piece& p : param.pieces)
      text +=
          fmt::format("{} {} {} {} {}\n", p.source, p.rows, p.cols, p.view.transposed, p.offset);
  });
  return text + planner.checkpoint().index().identity();
}

class QuestionsTest : public testing::TestWithParam<std::string> {
 protected:
  QuestionsTest() {
    options_.model = test::model_in(test::source_dir() / "tests/data" / GetParam());
    options_.threads = 1;
    options_.spill.directories = {spill_.path() / "spill"};
  }
  static RunShape shape(const Planner& planner, int64_t tokens) {
    return planner.run_shape(tokens, 8, 1);
  }
  static QuantizeRequest request(const Planner& planner, const std::string& scheme) {
    QuantizeRequest request = parse_quantization(scheme);
    request.to_bf16 = planner.options().quantize.to_bf16;
    request.matrix_layout = planner.options().quantize.matrix_layout;
    return request;
  }

  using Question = std::function<std::string(Planner&)>;
  static Question plan_within(uint64_t budget, const std::string& scheme, int64_t tokens) {
    return [=](Planner& s) {
      try {
        const MemoryPlan memory = s.plan_within(shape(s, tokens), budget, request(s, scheme));
        return text_of(memory) + text_of(s.read_plan_for(memory, request(s, scheme)));
      } catch (const Error& e) {
        EXPECT_NE(e.kind(), ErrorKind::runtime);
        return std::string(e.what());
      }
    };
  }
  static std::vector<Question> questions(Planner& planner) {
    std::vector<Question> all;
    const uint64_t least = planner.smallest(shape(planner, 16)).needed();
    const uint64_t most = planner.predict(shape(planner, 16)).needed();
    for (uint64_t budget : {least / 2, least, (least + most) / 2, most, UINT64_MAX}) {
      for (const char* scheme : {"none", "int8", "*.0.*=int8,*=none"})
        all.push_back(plan_within(budget, scheme, 16));
    }
    for (int64_t tokens : {16, 64}) {
      all.push_back([=](Planner& s) { return text_of(s.smallest(shape(s, tokens))); });
      all.push_back([=](Planner& s) { return text_of(s.predict(shape(s, tokens))); });
      all.push_back([=](Planner& s) { return text_of(*s.fitting_plan(shape(s, tokens))); });
      all.push_back([=](Planner& s) {
        const MemoryPlan plan = s.smallest(shape(s, tokens));
        return text_of(s.read_plan_for(plan, s.options().quantize));
      });
      all.push_back([=](Planner& s) {
        return std::to_string(s.least_beside(shape(s, tokens), shape(s, tokens)).draft.device);
      });
    }
    return all;
  }

  test::TempDir spill_;
  ModelOptions options_;
};

TEST_P(QuestionsTest, LeaveNoTrace) {
  if (test::kSanitized)
    GTEST_SKIP() << "plans have the process's memory, which sanitizers let grow";
  Planner planner(options_);
  const std::string pieces = pieces_of(planner);
  const std::vector<Question> all = questions(planner);
  test::Random random("questions");
  std::map<size_t, std::string> answers;
  for (int i = 0; i < 150; ++i) {
    const auto number = static_cast<size_t>(random.between(0, std::ssize(all) - 1));
    const std::string answer = all[number](planner);
    EXPECT_EQ(answers.try_emplace(number, answer).first->second, answer) << "question " << number;
    ASSERT_EQ(pieces_of(planner), pieces) << "after question " << number;
  }
  const QuantizeRequest& quantize = planner.options().quantize;
  const MemoryPlan memory =
      planner.plan_within(shape(planner, 16), planner.machine().budget(), quantize);
  const ReadPlan read = planner.read_plan_for(memory, quantize);
  planner.smallest(shape(planner, 64));
  const std::shared_ptr<const Placed> placed = planner.place(shape(planner, 16));
  EXPECT_EQ(text_of(placed->memory), text_of(memory));
  EXPECT_EQ(text_of(*placed->read), text_of(read));
  for (const Question& question : all) question(planner);
  EXPECT_EQ(text_of(*placed->read), text_of(read)) << "what is placed stays";
  EXPECT_FALSE(std::filesystem::exists(spill_.path() / "spill"));
}

INSTANTIATE_TEST_SUITE_P(Models, QuestionsTest,
                         testing::Values("formats/gptq_int4_g32_actorder", "formats/awq_int4_g64",
                                         "models/gpt2_noprefix", "models/phi3_longrope"),
                         [](const auto& model) {
                           return model.param.substr(model.param.find('/') + 1);
                         });

}  // namespace
}  // namespace sluice
