// sluice spill: what the spill cache holds, and how to be rid of it.
#include <ctime>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"
#include "src/load/spill_directory.h"

namespace sluice::cli {
namespace {

struct SpillVerbOptions {
  std::string directory = "auto";
  bool clear = false;
  bool json = false;
};

std::string time_text(int64_t seconds) {
  std::time_t time = seconds;
  std::tm parts{};
  localtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts)};
}

void run(const SpillVerbOptions& o) {
  std::filesystem::path directory =
      o.directory == "auto" ? default_spill_directory() : std::filesystem::path(o.directory);
  if (directory.empty())
    fail(ErrorKind::usage, "there is no spill directory; name one with --spill-dir");
  uint64_t removed = o.clear ? clear_spill_files(directory) : 0;
  Json files = Json::array();
  uint64_t total = 0;
  std::string text;
  for (const SpillFileInfo& f : list_spill_files(directory)) {
    files.push_back({{"file", f.path.string()},
                     {"bytes", f.bytes},
                     {"last_use", f.last_use},
                     {"model", f.model},
                     {"scheme", f.scheme}});
    total += f.bytes;
    text +=
        fmt::format("{:>10}  {}  {:<16} {}\n", format_size(f.bytes), time_text(f.last_use),
                    f.scheme.empty() ? "-" : f.scheme, f.model.empty() ? f.path.string() : f.model);
  }
  if (o.json) {
    print_json({{"directory", directory.string()},
                {"bytes", total},
                {"removed_bytes", removed},
                {"files", files}});
    return;
  }
  if (o.clear) text += fmt::format("removed {}\n", format_size(removed));
  print(text + fmt::format("{} in {}\n", format_size(total), directory.string()));
}

}  // namespace

void define_spill(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<SpillVerbOptions>();
  CLI::App* verb = app.add_subcommand("spill", "List or clear the spill cache");
  verb->footer(
      "The cache holds weights that were quantized while loading and do not stay in memory.\n"
      "Examples:\n  sluice spill\n  sluice spill --clear");
  verb->add_option("--spill-dir", o->directory, "the directory, auto: $XDG_CACHE_HOME/sluice/spill")
      ->capture_default_str();
  verb->add_flag("--clear", o->clear, "remove what no running process is writing");
  verb->add_flag("--json", o->json, "print one JSON object on stdout");
  verb->callback([o] { run(*o); });
}

}  // namespace sluice::cli
