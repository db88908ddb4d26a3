// The index of a batch's files, which are not held.
#include "src/serve/batch/batch_index.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "src/serve/batch/batch_output.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

std::string line(const std::string& custom_id, int priority = 0) {
  return Json{{"custom_id", custom_id},
              {"url", "/v1/completions"},
              {"body", {{"priority", priority}}}}
             .dump() +
         "\n";
}

class BatchIndexTest : public testing::Test {
 protected:
  static constexpr RequestLimits kLimits{.bytes = 256, .parse_bytes = 1 << 20};

  std::filesystem::path responses() const { return dir_ / "responses"; }
  BatchOutput output() { return {responses(), 4096, ledger_, {}}; }
  BatchIndex index(const io::InputFile& file, const BatchOutput& out) {
    return {file, count_batch_lines(file), kLimits, ledger_, out, [&](const BatchLine& l) {
              looked_at_.push_back(l.id);
              return l.body.value("priority", int64_t{0});
            }};
  }
  BatchIndex index_of(const std::string& text) {
    test::write_file(dir_ / "requests", text);
    file_.emplace(dir_ / "requests", dir_.path(), std::stop_token());
    output_.reset();  // as its lock is the process's
    output_.emplace(output());
    return index(*file_, *output_);
  }
  static std::vector<std::string> ids(const BatchIndex& index) {
    std::vector<std::string> ids;
    for (const BatchEntry& e : index.pending()) ids.push_back(index.read(e).id);
    return ids;
  }

  test::TempDir dir_;
  Ledger ledger_;
  std::optional<io::InputFile> file_;
  std::optional<BatchOutput> output_;
  std::vector<std::string> looked_at_;
};

using Ids = std::vector<std::string>;

TEST_F(BatchIndexTest, LowPrioritiesComeFirstAndThenTheOrderOfTheFile) {
  BatchIndex index = index_of(line("a", 5) + "\n \t\r\n" + line("b") + line("c", -1) + line("d"));
  EXPECT_EQ(ids(index), (Ids{"batch_req_c", "batch_req_b", "batch_req_d", "batch_req_a"}));
  EXPECT_EQ(index.read(index.pending()[3]).where, file_->name() + ", line 1");
  EXPECT_EQ(index.lines(), 4);
  EXPECT_EQ(ledger_.used(Place::host), Buffer::charged_bytes(4 * sizeof(BatchEntry)));
}

TEST_F(BatchIndexTest, FaultsAreKeptAndSaidAgain) {
  std::string longer = line(std::string(300, 'x'));
  BatchIndex index = index_of(line("a") + "{\n" + line("a") + longer + line("b") + line("a"));
  EXPECT_EQ(ids(index), (Ids{"batch_req_a", "batch_req_b", "batch_line_2", "batch_line_4",
                             "batch_line_3", "batch_line_6"}));
  auto fault = [&](size_t i) { return index.read(index.pending()[i]).fault; };
  EXPECT_EQ(fault(0), "");
  EXPECT_NE(fault(2).find("not valid JSON"), std::string::npos);
  EXPECT_NE(fault(3).find("--max-request-bytes"), std::string::npos);
  EXPECT_NE(fault(5).find("\"a\" was there before"), std::string::npos);
  EXPECT_EQ(looked_at_, (Ids{"batch_req_a", "batch_req_a", "batch_req_b", "batch_req_a"}));
}

TEST_F(BatchIndexTest, WhatParsesIntoTooMuchIsAFault) {
  std::string values;
  for (int i = 0; i < 100; ++i) values += "[],";
  EXPECT_GT(parse_bytes(values), 100 * 80U);
  EXPECT_LT(parse_bytes(line("a")), 16384U);
  EXPECT_GT(parse_bytes("\"" + std::string(1000, 'x') + "\""), 32'000U);
}

TEST_F(BatchIndexTest, ResponsesAreNotAskedForAgain) {
  std::string requests = line("a") + "{\n" + line("a") + line("b");
  {
    BatchIndex first = index_of(requests);
    for (const BatchEntry& e : first.pending().subspan(1)) {
      output_->add(first.read(e), 400, [](JsonWriter& json) { json.value("no"); });
    }
  }
  std::string whole = test::read_file(responses());
  test::write_file(responses(), whole + R"({"custom_id":"b","respo)");  // what a kill may leave
  looked_at_.clear();
  BatchIndex index = index_of(requests);
  EXPECT_EQ(ids(index), (Ids{"batch_req_a"}));
  EXPECT_EQ(index.done(), 3);
  EXPECT_EQ(looked_at_, (Ids{"batch_req_a", "batch_req_a"})) << "the second one is known later";
  EXPECT_EQ(test::read_file(responses()), whole);
}

TEST_F(BatchIndexTest, WhatIsRemovedIsGivenBack) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += line(std::to_string(i));
  BatchIndex index = index_of(text);
  uint64_t before = ledger_.used(Place::host);
  int64_t n = 0;
  index.remove_if([&](const BatchEntry&) { return n++ % 5 != 0; });
  EXPECT_EQ(index.pending().size(), 200U);
  EXPECT_EQ(index.read(index.pending()[199]).id, "batch_req_995");
  EXPECT_LT(ledger_.used(Place::host), before / 3);
}

TEST_F(BatchIndexTest, AFileThatHasChangedIsNoticed) {
  BatchIndex index = index_of(line("a") + line("b"));
  test::write_file(dir_ / "requests", line("b") + line("a"));
  EXPECT_THROW(index.read(index.pending()[0]), Error);
}

TEST_F(BatchIndexTest, LinesOfAPipeAreReadTwice) {
  std::filesystem::path fifo = dir_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::string text;
  for (int i = 0; i < 5000; ++i) text += line(std::to_string(i), -i);
  std::jthread writer([&] { test::write_file(fifo, text); });
  const io::InputFile file(fifo, dir_.path(), {});
  EXPECT_EQ(file.size(), text.size());
  BatchOutput out = output();
  BatchIndex piped = index(file, out);
  EXPECT_EQ(piped.read(piped.pending()[0]).id, "batch_req_4999");
  auto files = std::filesystem::directory_iterator(dir_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2) << "the copy has no name";
}

TEST_F(BatchIndexTest, DevicesAndDirectoriesAreNoInput) {
  EXPECT_THROW(io::InputFile("/dev/zero", dir_.path(), {}), Error);
  EXPECT_THROW(io::InputFile(dir_.path(), dir_.path(), {}), Error);
}

TEST_F(BatchIndexTest, AnOutputIsOneProcesss) {
  BatchOutput first = output();
  EXPECT_THROW(output(), Error);
}

TEST_F(BatchIndexTest, OutputsThatAreSomethingElseStay) {
  std::string response = R"({"custom_id":"a","id":"batch_req_a","response":{}})";
  std::string deep = R"({"custom_id":)" + std::string(100, '[');
  for (const std::string& text :
       {"Dear diary\n" + response + "\n", response + "\nDear diary", std::string("[]\n"),
        std::string(R"({"id":"batch_req_a","response":{}})") + "\n",
        R"({"custom_id":"a"})" + deep + "\n", deep + "\n", std::string(8192, '\0') + "\n",
        response + ",\n", R"({"custom_id":"a","response":")" + std::string(5000, 'x') + "\"}\n"}) {
    test::write_file(responses(), text);
    EXPECT_THROW(output(), Error) << text.substr(0, 80);
    EXPECT_EQ(test::read_file(responses()), text);
  }
  test::write_file(responses(), "\n" + response + "\n \n" + response + "\n");
  EXPECT_TRUE(output().done(digest_of("batch_req_a")));
  EXPECT_FALSE(output().done(digest_of("batch_req_b")));
}

}  // namespace
}  // namespace sluice
