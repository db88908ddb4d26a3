// Tables and pages from reports that are made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "src/base/error.h"
#include "src/cli/report/report_chart.h"
#include "src/cli/report/report_compare.h"
#include "src/cli/report/report_data.h"
#include "src/cli/report/report_html.h"
#include "src/cli/report/report_series.h"
#include "src/cli/report/report_summary.h"
#include "src/cli/report/report_trace.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json account(const char* use, const char* owner, const char* place = "host") {
  return {{"place", place}, {"use", use}, {"owner", owner}, {"bytes", 0}};
}

// Eight seconds: a load of two, then a run that streams.
Json made_by_hand() {
  return {
      {"schema", "sluice.report/1"},
      {"verb", "run"},
      {"model", "m"},
      {"architecture", "LlamaForCausalLM"},
      {"quantization", "fp8_per_channel"},
      {"load",
       {{"seconds", 2.0},
        {"bytes_read", 1000},
        {"bytes_needed", 1000},
        {"read_amplification", 1.0},
        {"bytes_per_second", 500.0},
        {"weights_bytes", 600},
        {"reader", "pread"},
        {"tensors",
         {{{"name", "a"}, {"stored", "BF16"}, {"kept", "F32"}, {"not_finite", 0}},
          {{"name", "b"},
           {"stored", "BF16"},
           {"kept", "F8_E4M3"},
           {"not_finite", 0},
           {"relative_rms_error", 0.02},
           {"max_error", 0.1}},
          {{"name", "c"},
           {"stored", "BF16"},
           {"kept", "F8_E4M3"},
           {"not_finite", 0},
           {"relative_rms_error", 0.03},
           {"max_error", 0.05}}}}}},
      {"stream",
       {{"bytes_per_sweep", 400},
        {"bytes_read", 3000},
        {"wait_seconds", 0.5},
        {"units",
         {{{"name", "layer 0"},
           {"bytes", 3000},
           {"stalls", {{"disk", 0.25}, {"compute", 0.125}, {"copy", 0.5}}}}}}}},
      {"disk", {{"samples", {{0.0, 0}, {2.0, 1000}, {2.0, 1000}, {8.0, 4000}}}}},
      {"memory",
       {{"budget", 2000},
        {"predicted_peak", 1024},
        {"ledger_peak", 900},
        {"measured_peak", 1000},
        {"cgroup_peak", nullptr},
        {"peak_holders", Json::array({account("weights", "layer 0")})},
        {"phases", {{{"seconds", 0.0}, {"name", "load"}}, {{"seconds", 2.0}, {"name", "run"}}}},
        {"accounts",
         {account("runtime", "process"), account("staging", "ring"), account("weights", "layer 0"),
          account("weights", "layer 1"), account("weights", "there", "device")}},
        {"timeline",
         {{0.0, 0, 100},
          {1.0, 1, 300},
          {1.5, 2, 200},
          {1.75, 3, 300},
          {2.0, 1, -300},
          {3.0, 4, 5000}}}}},
      {"timings",
       {{"load_seconds", 2.0},
        {"prompt_tokens", 100},
        {"generated_tokens", 41},
        {"prefill_seconds", 1.0},
        {"prefill_tokens_per_second", 100.0},
        {"decode_seconds", 4.0},
        {"decode_tokens_per_second", 10.0}}}};
}

ReportData data_of(const Json& json) { return report_data(json, "r.json"); }

TEST(ReportData, ReadsFiguresAndLists) {
  ReportData data = data_of(made_by_hand());
  EXPECT_EQ(data.figure(Figure::bytes_read), 4000);  // load and stream
  EXPECT_EQ(data.figure(Figure::decode_tokens_per_second), 10);
  EXPECT_EQ(data.figure(Figure::worst_quantization_error), 0.03);
  EXPECT_FALSE(data.figure(Figure::cgroup_peak));
  ASSERT_EQ(data.quantized.size(), 2u);
  EXPECT_EQ(data.quantized[0].name, "c");
  ASSERT_EQ(data.units.size(), 1u);
  EXPECT_EQ(data.units[0].total(), 0.875);
  EXPECT_EQ(data.disk.size(), 4u);
  EXPECT_EQ(data.end, 8);
  EXPECT_EQ(figure_info(Figure::worst_quantization_error).name, "worst_quantization_error");
  EXPECT_EQ(figure_info(Figure::load_seconds).name, "load_seconds");
}

TEST(ReportData, WhatIsNotThereIsMissing) {
  Json json = made_by_hand();
  for (const char* key : {"disk", "architecture"}) json.erase(key);
  json["stream"] = nullptr;
  json["timings"] = Json::object();
  json["load"]["read_amplification"] = nullptr;  // how JSON writes what is not finite
  ReportData data = data_of(json);
  EXPECT_TRUE(data.disk.empty());
  EXPECT_TRUE(data.units.empty());
  EXPECT_EQ(data.figure(Figure::bytes_per_sweep), 0);  // all weights stay
  EXPECT_EQ(data.figure(Figure::bytes_read), 1000);
  EXPECT_FALSE(data.figure(Figure::stream_wait_seconds));
  EXPECT_FALSE(data.figure(Figure::read_amplification));
  EXPECT_EQ(data.end, 3);
  std::string page = report_html(data);
  EXPECT_THAT(page, Not(HasSubstr("Disk throughput")));
  EXPECT_THAT(page, Not(HasSubstr("Stalls")));
  EXPECT_THAT(page, HasSubstr("Memory over time"));
  json["memory"]["timeline"] = Json::array();
  EXPECT_THAT(report_html(data_of(json)), Not(HasSubstr("<svg")));
  EXPECT_TRUE(Json::accept(report_trace(data_of(json))));
}

// Every value replaced by every kind of other value: an Error(refused), or a page and a trace.
TEST(ReportData, SurvivesEveryDamage) {
  const Json whole = made_by_hand();
  const Json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         UINT64_MAX,
                         1e308,
                         INT64_MIN,
                         5e-324,
                         "text",
                         "\x01<&\"'\xef\xbf\xbf",
                         Json::array(),
                         Json::object(),
                         Json::array({nullptr})};
  int refused = 0;
  int shown = 0;
  int summaries = 0;
  const Json leaves = whole.flatten();
  for (const auto& [pointer, unused] : leaves.items()) {
    for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      for (const Json& value : values) {
        Json damaged = whole;
        damaged[at] = value;
        try {
          summary_text(damaged);
          ++summaries;
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::refused);
        }
        try {
          ReportData data = data_of(damaged);
          std::string page = report_html(data);
          EXPECT_EQ(page.find('\x01'), std::string::npos);
          EXPECT_THAT(page, Not(HasSubstr("nan")));
          EXPECT_TRUE(Json::accept(report_trace(data)));
          compare_reports(data, data_of(whole), {});
          ++shown;
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::refused);
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(shown, 100);
  EXPECT_GT(summaries, 100);
}

TEST(ReportData, RefusesASumThatDoesNotFit) {
  Json json = made_by_hand();
  json["load"]["bytes_read"] = INT64_MAX;
  EXPECT_THROW(data_of(json), Error);  // the stream read some more
  json["stream"]["bytes_read"] = 0;
  EXPECT_EQ(figure_text(Figure::bytes_read, *data_of(json).figure(Figure::bytes_read)),
            "8388608 TiB");
}

TEST(ReportSummary, SaysWhatThereIs) {
  Json json = made_by_hand();
  std::string text = summary_text(json);
  EXPECT_THAT(text, HasSubstr("loaded     1000 B as 600 B of weights in 2.00 s"));
  EXPECT_THAT(text, HasSubstr("largest relative RMS error 0.0300 (c), largest error 0.1"));
  EXPECT_THAT(text, HasSubstr("streamed   400 B for each pass"));
  EXPECT_THAT(text, HasSubstr("generated  41 tokens, 10.0 tokens/s"));
  EXPECT_THAT(text, Not(HasSubstr("spill ")));
  json["spill"] = {{"copies", {"x.spill"}}, {"outcome", "written"}, {"bytes", 10}};
  EXPECT_THAT(summary_text(json), HasSubstr("spill      written: 10 B in x.spill"));
}

TEST(ReportSummary, RefusesWhatIsNoReport) {
  auto refusal = [](auto&& damage) {
    Json json = made_by_hand();
    json["spill"] = {{"copies", {"x.spill"}}, {"outcome", "written"}, {"bytes", 10}};
    damage(json);
    try {
      summary_text(json, "r.json");
      return std::string("nothing");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(refusal([](Json& j) { j["spill"]["copies"] = Json::array(); }),
            "r.json: spill: copies must be a list of files");
  EXPECT_THAT(refusal([](Json& j) { j["load"]["bytes_read"] = 1e300; }),
              HasSubstr("r.json: load: bytes_read must be an integer"));
  EXPECT_THAT(refusal([](Json& j) { j["timings"] = 3; }), HasSubstr("r.json: timings"));
}

TEST(ReportSummary, NamesCannotSpeakToTheTerminal) {
  Json json = made_by_hand();
  json["load"]["reader"] = "\x1b[31m\n";
  EXPECT_THAT(summary_text(json), HasSubstr("(?[31m?)"));
}

TEST(ReportSeries, FollowsTheLedgerOfOnePlace) {
  ReportData data = data_of(made_by_hand());
  MemorySeries series = memory_series(data.memory, Place::host, data.end, 1000);
  ASSERT_EQ(series.steps.size(), 5u);
  EXPECT_EQ(series.peak(), 900u);
  EXPECT_EQ(series.peaks[static_cast<size_t>(Use::weights)], 500u);
  EXPECT_EQ(series.at_peak[static_cast<size_t>(Use::staging)], 300u);
  EXPECT_EQ(total_bytes(series.steps.back().bytes), 600u);
  EXPECT_EQ(memory_series(data.memory, Place::device, data.end, 10).peak(), 5000u);
}

TEST(ReportSeries, IsBoundedAndKeepsThePeak) {
  MemoryReport memory;
  memory.accounts = {{Place::host, Use::weights, "w", 0}};
  for (int i = 0; i < 10000; ++i) {
    memory.timeline.push_back({i * 1e-3, 0, i == 5432 ? 1000 : 7});
    memory.timeline.push_back({i * 1e-3, 0, i == 5432 ? -1000 : -7});
  }
  memory.timeline.push_back({10.0, 0, 3});
  MemorySeries series = memory_series(memory, Place::host, 10, 20);
  EXPECT_LE(series.steps.size(), 42u);
  EXPECT_EQ(series.peak(), 1000u);
  uint64_t largest = 0;
  double last = 0;
  for (const MemoryStep& s : series.steps) {
    largest = std::max(largest, total_bytes(s.bytes));
    EXPECT_GE(s.seconds, last);
    last = s.seconds;
  }
  EXPECT_EQ(largest, 1000u);
  EXPECT_EQ(total_bytes(series.steps.back().bytes), 3u);
}

TEST(ReportSeries, RatesKeepEveryByte) {
  std::vector<DiskSample> samples;
  uint64_t bytes = 0;
  for (int i = 0; i <= 1000; ++i) {
    samples.push_back({0.5 + i * i * 1e-5, bytes});
    bytes += static_cast<uint64_t>(i % 7) * 1000;
  }
  for (double shortest : {0.0, 1e-3, 0.7, 100.0}) {
    std::vector<RateStep> rates = disk_rates(samples, shortest);
    ASSERT_FALSE(rates.empty());
    double sum = 0;
    double end = samples.front().seconds;
    for (const RateStep& r : rates) {
      EXPECT_EQ(r.begin, end);
      end = r.end;
      sum += r.bytes_per_second * (r.end - r.begin);
      if (rates.size() > 1) {
        EXPECT_GE(r.end - r.begin, shortest);
      }
    }
    EXPECT_EQ(end, samples.back().seconds);
    EXPECT_NEAR(sum, static_cast<double>(samples.back().bytes), 1);
  }
  EXPECT_TRUE(disk_rates({}, 1).empty());
  EXPECT_TRUE(disk_rates(std::vector<DiskSample>(3, DiskSample{1, 5}), 0).empty());
}

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> all;
  all.reserve(ticks.size());
  for (const Tick& t : ticks) all.push_back(t.label);
  return all;
}

TEST(ReportChart, TicksAreRoundAndHaveUnits) {
  EXPECT_THAT(labels(axis_ticks(Quantity::bytes, 20 << 20)),
              ::testing::ElementsAre("0", "4 MiB", "8 MiB", "12 MiB", "16 MiB", "20 MiB"));
  EXPECT_THAT(labels(axis_ticks(Quantity::bytes, 1.4 * (1 << 30))),
              ::testing::ElementsAre("0", "0.5 GiB", "1 GiB", "1.5 GiB"));
  EXPECT_THAT(labels(axis_ticks(Quantity::seconds, 0.14)),
              ::testing::ElementsAre("0", "50 ms", "100 ms", "150 ms"));
  EXPECT_THAT(labels(axis_ticks(Quantity::seconds, 93)),
              ::testing::ElementsAre("0", "20 s", "40 s", "60 s", "80 s", "100 s"));
  EXPECT_THAT(labels(axis_ticks(Quantity::bytes_per_second, 2.3e9)),
              ::testing::ElementsAre("0", "0.5 GB/s", "1 GB/s", "1.5 GB/s", "2 GB/s", "2.5 GB/s"));
  for (Quantity q : {Quantity::seconds, Quantity::bytes, Quantity::bytes_per_second}) {
    for (double most = 1e-6; most < 1e20; most *= 1.37) {
      std::vector<Tick> ticks = axis_ticks(q, most);
      EXPECT_GE(ticks.back().at, most * (1 - 1e-9));
      EXPECT_LT(ticks[ticks.size() - 2].at, most);
      EXPECT_GE(ticks.size(), 3u);
      EXPECT_LE(ticks.size(), 7u);
    }
  }
}

TEST(ReportChart, TextCannotLeaveItsPlace) {
  EXPECT_EQ(html_text("a<b>&\"'\n"), "a&lt;b&gt;&amp;&quot;&#39;\n");
  EXPECT_EQ(html_text(std::string_view("\x00\x1b\x7f", 3)), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(html_text("\xef\xbf\xbf\xc3\xa9"), "\xef\xbf\xbd\xc3\xa9");
}

FigureChange change_in(const Comparison& comparison, Figure figure) {
  auto found = std::ranges::find(comparison.changes, figure, &FigureChange::figure);
  return found == comparison.changes.end() ? FigureChange{} : *found;
}

Comparison compared(const std::function<void(Json&)>& edit, const Thresholds& thresholds = {}) {
  Json changed = made_by_hand();
  edit(changed);
  return compare_reports(data_of(made_by_hand()), data_of(changed), thresholds);
}

TEST(ReportCompare, TheSameIsNoRegression) {
  Comparison same = compared([](Json&) {});
  EXPECT_EQ(same.worst(), nullptr);
  for (const FigureChange& c : same.changes) EXPECT_EQ(c.percent.value_or(0), 0);
}

TEST(ReportCompare, DirectionsAndThresholds) {
  auto memory = [](Json& r) { r["memory"]["measured_peak"] = 1100; };
  EXPECT_EQ(compared(memory).worst()->figure, Figure::measured_peak);
  EXPECT_EQ(compared(memory, {.memory = 10}).worst(), nullptr);  // at the threshold
  EXPECT_NE(compared(memory, {.memory = 9.9}).worst(), nullptr);
  EXPECT_EQ(compared([](Json& r) { r["memory"]["measured_peak"] = 100; }).worst(), nullptr);
  auto slower = [](Json& r) { r["timings"]["decode_tokens_per_second"] = 8; };
  EXPECT_EQ(compared(slower).worst()->figure, Figure::decode_tokens_per_second);
  EXPECT_EQ(compared(slower, {.speed = 20}).worst(), nullptr);
  EXPECT_EQ(compared([](Json& r) { r["timings"]["decode_tokens_per_second"] = 80; }).worst(),
            nullptr);
  auto coarser = [](Json& r) { r["load"]["tensors"][1]["relative_rms_error"] = 0.04; };
  EXPECT_EQ(compared(coarser).worst()->figure, Figure::worst_quantization_error);
  EXPECT_EQ(compared([](Json& r) { r["memory"]["cgroup_peak"] = 1; }).worst(), nullptr);
}

TEST(ReportCompare, TheWorstIsTheLargestFactor) {
  Comparison both = compared([](Json& r) {
    r["memory"]["measured_peak"] = 1500;             // half as much again
    r["timings"]["prefill_tokens_per_second"] = 50;  // half of it: twice as slow
  });
  EXPECT_EQ(both.worst()->figure, Figure::prefill_tokens_per_second);
  EXPECT_EQ(change_sentence(*both.worst()),
            "prefill fell from 100.0 tokens/s to 50.0 tokens/s (-50.0 %)");
}

TEST(ReportCompare, MissingDoesNotFailButFromNothingDoes) {
  Comparison missing = compared([](Json& r) { r["timings"].erase("decode_tokens_per_second"); });
  EXPECT_EQ(missing.worst(), nullptr);
  EXPECT_FALSE(change_in(missing, Figure::decode_tokens_per_second).b);
  Json resident = made_by_hand();
  resident["stream"] = nullptr;
  ReportData a = data_of(resident);
  ReportData b = data_of(made_by_hand());
  Comparison streams = compare_reports(a, b, {});
  EXPECT_EQ(streams.worst()->figure, Figure::bytes_per_sweep);
  EXPECT_EQ(change_sentence(*streams.worst()), "read for each pass grew from 0 B to 400 B");
  Json json = comparison_json(streams, a, b, {});
  EXPECT_TRUE(json["figures"]["bytes_per_sweep"]["regression"].get<bool>());
  EXPECT_TRUE(json["figures"]["bytes_per_sweep"]["change_percent"].is_null());
  EXPECT_THAT(comparison_text(missing, a, b), HasSubstr("missing"));
}

TEST(ReportTrace, CountersFollowTheTimelines) {
  Json trace = Json::parse(report_trace(data_of(made_by_hand())));
  std::vector<Json> memory, disk, slices;
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("name") == "memory") memory.push_back(e);
    if (e.at("name") == "disk") disk.push_back(e);
    if (e.at("ph") == "X") slices.push_back(e);
  }
  ASSERT_EQ(memory.size(), 5u);
  EXPECT_EQ(memory[3]["ts"], 1.75e6);
  EXPECT_EQ(memory[3]["args"], (Json{{"runtime", 100}, {"staging", 300}, {"weights", 500}}));
  ASSERT_EQ(disk.size(), 3u);
  EXPECT_EQ(disk[0]["args"]["GB/s"], 500.0 / 1e9);
  EXPECT_EQ(disk[2]["args"]["GB/s"], 0);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[1]["name"], "run");
  EXPECT_EQ(slices[1]["ts"], 2e6);
  EXPECT_EQ(slices[1]["dur"], 6e6);
  EXPECT_EQ(slices[2]["args"]["layer 0"]["disk_seconds"], 0.25);
}

}  // namespace
}  // namespace sluice::cli
