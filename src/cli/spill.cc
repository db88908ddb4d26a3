// sluice spill: what the spill cache holds, and how to be rid of it.
#include <ctime>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"
#include "src/load/spill_directory.h"

namespace sluice::cli {
namespace {

struct SpillVerbOptions {
  std::vector<std::string> directories{"auto"};
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

struct Listed {
  Json files = Json::array();
  uint64_t bytes = 0;
  uint64_t removed = 0;
  std::string text;
};

void list(const std::filesystem::path& directory, bool clear, Listed& all) {
  if (clear) all.removed += clear_spill_files(directory);
  uint64_t bytes = 0;
  for (const SpillFileInfo& f : list_spill_files(directory)) {
    all.files.push_back({{"file", f.path.string()},
                         {"bytes", f.bytes},
                         {"last_use", f.last_use},
                         {"model", f.model},
                         {"scheme", f.scheme}});
    bytes += f.bytes;
    all.text += fmt::format("{:>10}  {}  {:<16} {}\n", format_size(f.bytes), time_text(f.last_use),
                            f.scheme.empty() ? "-" : io::printable(f.scheme),
                            io::printable(f.model.empty() ? f.path.string() : f.model));
  }
  all.bytes += bytes;
  all.text += fmt::format("{} in {}\n", format_size(bytes), directory.string());
}

void run(const SpillVerbOptions& o) {
  Listed all;
  Json names = Json::array();
  for (const std::string& name : o.directories) {
    std::filesystem::path directory =
        name == "auto" ? default_spill_directory() : std::filesystem::path(name);
    if (directory.empty())
      fail(ErrorKind::usage, "no spill directory is set; name one with --spill-dir");
    list(directory, o.clear, all);
    names.push_back(directory.string());
  }
  if (o.json) {
    print_json({{"directories", names},
                {"bytes", all.bytes},
                {"removed_bytes", all.removed},
                {"files", all.files}});
    return;
  }
  if (o.clear) all.text += fmt::format("removed {}\n", format_size(all.removed));
  print(all.text);
}

}  // namespace

void define_spill(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<SpillVerbOptions>();
  CLI::App* verb = app.add_subcommand("spill", "List or clear the spill cache");
  verb->footer(
      "The cache holds packed codes of weights that are quantized while loading and\n"
      "streamed, and of weights that are stored by columns.\n"
      "Examples:\n  sluice spill\n  sluice spill --clear");
  verb->add_option(
          "--spill-dir", o->directories,
          "Look in this directory, or auto ($XDG_CACHE_HOME/sluice/spill); may be given several "
          "times")
      ->type_name("DIRECTORY")
      ->allow_extra_args(false);
  verb->add_flag("--clear", o->clear, "Remove all files that no running process is writing");
  verb->add_flag("--json", o->json, "Print the result as one JSON object");
  verb->callback([o] { run(*o); });
}

}  // namespace sluice::cli
