#include "src/memory/report.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace sluice {
namespace {

MemoryReport of_a_ledger() {
  Ledger ledger;
  ledger.set_budget(Place::host, 1000);
  ledger.begin_phase("load");
  Lease weights = ledger.lease(Place::host, Use::weights, "layer 0", 100);
  {
    Lease staging = ledger.lease(Place::host, Use::staging, "ring", 50);
  }
  ledger.begin_phase("run");
  Lease cache = ledger.lease(Place::host, Use::kv_cache, "KV cache", 20);
  return measure_memory(ledger, Timeline::included, 140);
}

Json written(const MemoryReport& report) {
  std::string text;
  append_json(text, [&](JsonWriter& json) { write_json(json, report); });
  return parse_json(text, "here");
}

TEST(MemoryReport, IsTheSameAfterJson) {
  MemoryReport before = of_a_ledger();
  Json json = written(before);
  MemoryReport after = memory_report_from_json(json, "here");
  EXPECT_EQ(written(after), json);
  ASSERT_EQ(after.timeline.size(), 4u);
  EXPECT_EQ(after.timeline[2].delta, -50);
  EXPECT_EQ(after.accounts[after.timeline[3].account].owner, "KV cache");
  EXPECT_EQ(after.phases[1].name, "run");
  EXPECT_EQ(after.ledger_peak, 150u);
}

TEST(MemoryReport, HasTheDeviceIfItHasABudget) {
  Ledger ledger;
  EXPECT_FALSE(measure_memory(ledger, Timeline::left_out, 0, 70).device);
  ledger.set_budget(Place::device, 100);
  {
    Lease weights = ledger.lease(Place::device, Use::weights, "layer 0", 60);
  }
  MemoryReport report = measure_memory(ledger, Timeline::left_out, 0, 70);
  Json json = to_json(report);
  EXPECT_EQ(json.at("device"),
            (Json{{"budget", 100}, {"predicted_peak", 70}, {"ledger_peak", 60}}));
  EXPECT_EQ(to_json(memory_report_from_json(json, "here")), json);
  EXPECT_NE(to_text(report).find("device"), std::string::npos);
}

// Values that no ledger writes are refused with a word about them.
TEST(MemoryReport, RefusesWhatIsDamaged) {
  struct Case {
    const char* pointer;
    Json value;
    const char* mention;
  };
  const Case cases[] = {
      {"/timeline", 5, "timeline must be a list"},
      {"/timeline/0", Json::array({0.5, 0}), "[seconds, account, bytes]"},
      {"/timeline/0", "0", "[seconds, account, bytes]"},
      {"/timeline/0/0", -1, "a time must be"},
      {"/timeline/0/0", 1e300, "a time must be"},
      {"/timeline/0/0", "1", "a time must be"},
      {"/timeline/0/0", 1e8, "time goes back"},
      {"/timeline/0/1", -1, "no account -1"},
      {"/timeline/0/1", 3, "no account 3"},
      {"/timeline/0/1", 0.5, "an account must be an integer"},
      {"/timeline/0/1", UINT64_MAX, "an account must be an integer"},
      {"/timeline/0/2", -1, "less than nothing"},
      {"/timeline/0/2", INT64_MIN, "less than nothing"},
      {"/timeline/0/2", INT64_MAX, "more than 63 bits"},
      {"/timeline/0/2", UINT64_MAX, "a number of bytes must be an integer"},
      {"/timeline/2/2", -51, "less than nothing"},
      {"/accounts", nullptr, "accounts must be a list"},
      {"/accounts/0/use", "luggage", "\"luggage\" is not known"},
      {"/accounts/0/bytes", -1, "bytes is -1"},
      {"/phases/0/seconds", 1e8, "time goes back"},
      {"/phases/0/seconds", "soon", "a time must be"},
      {"/peak_holders/0/place", "attic", "\"attic\" is not known"},
      {"/budget", -1, "budget is -1"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.pointer);
    Json json = written(of_a_ledger());
    json[Json::json_pointer(c.pointer)] = c.value;
    try {
      memory_report_from_json(json, "r.json");
      ADD_FAILURE() << c.value;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_NE(std::string(e.what()).find(c.mention), std::string::npos) << e.what();
      EXPECT_TRUE(std::string(e.what()).starts_with("r.json")) << e.what();
    }
  }
}

}  // namespace
}  // namespace sluice
