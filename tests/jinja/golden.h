// Rows of the templates' fixtures, rendered.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/jinja/template.h"
#include "tests/support/temp.h"

namespace sluice::test {

// Files of lines of JSON.
inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

inline void set_all(jinja::Context& context, const jinja::Value& variables) {
  for (const auto& [key, value] : variables.dict().entries) context.set(key.text(), value);
}

// The text, or "error: " and what is wrong.
inline std::string rendered(const jinja::Template& t, jinja::Context& context) {
  try {
    return t.render(context);
  } catch (const jinja::TemplateError& e) {
    return "error: " + e.message();
  }
}

}  // namespace sluice::test
