// Templates as transformers renders them: a sample beside the tests, and all of the shared fixtures
// where they are.
#include "tests/jinja/golden.h"

#include <gtest/gtest.h>

#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

const fs::path kData = test::source_dir() / "tests/data/jinja";

// Rows: {template, rendered or error}, with the variables of `variables`, if any.
void expect_units(const fs::path& units, const fs::path& variables) {
  for (const std::string& line : test::lines_of(units)) {
    jinja::Context context;
    if (!variables.empty())
      test::set_all(context, read_json(context.meter(), test::read_file(variables), "variables"));
    const jinja::Value row = jinja::read_json(context.meter(), line, "units");
    if (const jinja::Value* own = row.dict().find("variables")) test::set_all(context, *own);
    std::string text;
    const std::string& source = row.dict().find("template")->text();
    try {
      text = test::rendered(jinja::Template("unit", source), context);
    } catch (const jinja::TemplateError& e) {
      text = "error: " + e.message();
    }
    if (const jinja::Value* expected = row.dict().find("rendered")) {
      EXPECT_EQ(text, expected->text()) << source;
    } else {
      EXPECT_TRUE(text.starts_with("error: ")) << source << " gives " << text;
    }
  }
}

// Rows: {messages, add_generation_prompt, variables, rendered or error}.
int expect_renders(const fs::path& directory) {
  const jinja::Template t("chat_template.jinja",
                          test::read_file(directory / "chat_template.jinja"));
  int rows = 0;
  for (const std::string& line : test::lines_of(directory / "renders.jsonl")) {
    jinja::Context context;
    const jinja::Value row = jinja::read_json(context.meter(), line, "renders");
    test::set_all(context, *row.dict().find("variables"));
    for (const char* name : {"messages", "add_generation_prompt"})
      context.set(name, *row.dict().find(name));
    const std::string text = test::rendered(t, context);
    if (const jinja::Value* expected = row.dict().find("rendered")) {
      EXPECT_EQ(text, expected->text()) << directory << " " << line.substr(0, 300);
    } else {
      EXPECT_TRUE(text.starts_with("error: ")) << directory << " " << line.substr(0, 300);
    }
    ++rows;
  }
  return rows;
}

TEST(JinjaGolden, UnitsOfTheBundledFile) { expect_units(kData / "units.jsonl", {}); }

TEST(JinjaGolden, UnitsOfTheSharedFixtures) {
  if (test::oracle_dir().empty()) GTEST_SKIP() << "the shared fixtures are not here";
  const fs::path units = test::oracle_dir() / "chat_templates/jinja_units";
  expect_units(units / "units.jsonl", units / "variables.json");
}

TEST(JinjaGolden, ChatsOfTheBundledTemplates) {
  int rows = 0;
  for (const auto& entry : fs::directory_iterator(kData / "chats"))
    rows += expect_renders(entry.path());
  EXPECT_GT(rows, 50);
}

TEST(JinjaGolden, ChatsOfTheSharedFixtures) {
  if (test::oracle_dir().empty()) GTEST_SKIP() << "the shared fixtures are not here";
  for (const auto& entry : fs::directory_iterator(test::oracle_dir() / "chat_templates"))
    if (fs::exists(entry.path() / "renders.jsonl")) expect_renders(entry.path());
}

}  // namespace
}  // namespace sluice
