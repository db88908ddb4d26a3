// sluice pull, list, show, rm: models of the Hugging Face hub, in the cache that other programs
// use.

#include "io/file.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"
#include "src/cli/verbs.h"
#include "src/hub/cache.h"
#include "src/hub/pull.h"
#include "src/hub/web_model.h"

namespace sluice::cli {
namespace {

struct ModelVerbOptions {
  std::string name;
  std::vector<std::string> include, exclude;
  int connections = 4;
  bool json = false;
  bool quiet = false;
};

HubName named(const std::string& text) {
  const std::optional<HubName> name = parse_hub_name(text);
  if (!name && std::filesystem::exists(text))
    fail(ErrorKind::usage,
         "{}: is a path; give the name of a model in the cache, or use sluice inspect for a path",
         text);
  if (!name) fail(ErrorKind::usage, "{}: give a name as ORG/NAME[@REVISION][:TAG]", text);
  return *name;
}

std::filesystem::path cache_directory() {
  std::filesystem::path cache = hub_cache();
  if (cache.empty()) fail(ErrorKind::usage, "no cache directory is set; set HF_HUB_CACHE to one");
  return cache;
}

// The name of a model that is here, perhaps without an owner.
HubName named_here(const std::string& text) {
  const std::optional<HubName> name = name_in_cache(cache_directory(), text);
  return name ? *name : named(text);
}

CachedModel cached(const std::string& text) {
  const HubName name = named_here(text);
  std::optional<CachedModel> model = find_cached(cache_directory(), name);
  if (!model)
    fail(ErrorKind::refused, "{} is not in {}; {}", name.text(), cache_directory().string(),
         how_to_fetch(name));
  return std::move(*model);
}

const char* state_of(const CachedModel& model) {
  if (!model.fault.empty()) return "damaged";
  return !model.missing.empty() ? "unfinished" : model.has_weights ? "complete" : "without weights";
}

Json model_json(const CachedModel& model) {
  return {{"name", model.name.text()},       {"commit", model.commit},
          {"path", model.snapshot.string()}, {"bytes", model.bytes},
          {"state", state_of(model)},        {"missing", model.missing}};
}

const char* state_of(const WebModel& model) {
  return model.is_complete ? "complete" : "unfinished";
}

Json model_json(const WebModel& model) {
  return {{"name", model.address},
          {"path", model.directory.string()},
          {"bytes", model.bytes},
          {"state", state_of(model)}};
}

// Does `work` with a display of its progress.
template <class Work>
auto fetch_shown(bool quiet, Work work) {
  const std::string_view offline = environment("HF_HUB_OFFLINE");
  if (offline == "1" || offline == "true")
    fail(ErrorKind::usage, "HF_HUB_OFFLINE is set, which forbids fetching; unset it");
  PullProgress progress;
  const ProgressDisplay display({.work = "fetching",
                                 .bytes_done = progress.done,
                                 .bytes_total = progress.total,
                                 .parts = "file",
                                 .parts_done = &progress.files_done,
                                 .parts_total = &progress.files_total},
                                quiet);
  return work(progress);
}

CachedModel fetch(const ModelVerbOptions& o, const std::stop_token& stop) {
  return fetch_shown(o.quiet, [&](PullProgress& progress) {
    return pull({.name = named(o.name),
                 .cache = cache_directory(),
                 .endpoint = hub_endpoint(),
                 .token = hub_token(),
                 .include = o.include,
                 .exclude = o.exclude,
                 .connections = o.connections},
                progress, stop);
  });
}

std::filesystem::path fetch(const WebAddress& address, bool quiet, const std::stop_token& stop) {
  return fetch_shown(
      quiet, [&](PullProgress& progress) { return fetch_web_model(address, progress, stop); });
}

void run_pull(const ModelVerbOptions& o, const std::stop_token& stop) {
  if (o.quiet) log::set_level(log::Level::error);
  if (const std::optional<WebAddress> address = parse_web_address(o.name)) {
    if (!o.include.empty() || !o.exclude.empty())
      fail(ErrorKind::usage, "--include and --exclude are of the hub's models; leave them out");
    const std::string path = fetch(*address, o.quiet, stop).string();
    if (o.json) return print_json({{"name", address->text()}, {"path", path}});
    return print(fmt::format("{}  {}\n", address->text(), path));
  }
  const CachedModel model = fetch(o, stop);
  if (o.json) return print_json(model_json(model));
  print(fmt::format("{}  {}  {}\n", model.name.text(), format_size(model.bytes),
                    model.snapshot.string()));
}

std::string list_line(std::string_view name, uint64_t bytes, std::string_view state) {
  return fmt::format("{:>10}  {}{}\n", format_size(bytes), io::printable(name),
                     state == "complete" ? std::string() : fmt::format("  ({})", state));
}

void run_list(const ModelVerbOptions& o) {
  const std::vector<CachedModel> models = list_cached(cache_directory());
  const std::vector<WebModel> web_models = list_web_models();
  if (o.json) {
    Json list = Json::array();
    for (const CachedModel& model : models) list.push_back(model_json(model));
    for (const WebModel& model : web_models) list.push_back(model_json(model));
    return print_json({{"cache", cache_directory().string()}, {"models", list}});
  }
  std::string text;
  for (const CachedModel& model : models)
    text += list_line(model.name.text(), model.bytes, state_of(model));
  if (models.empty()) {
    text = fmt::format("no models in {}; fetch one with: sluice pull ORG/NAME\n",
                       cache_directory().string());
  } else {
    text += fmt::format("{} model{} in {}\n", models.size(), models.size() == 1 ? "" : "s",
                        cache_directory().string());
  }
  for (const WebModel& model : web_models)
    text += list_line(model.address, model.bytes, state_of(model));
  print(text);
}

void show(const WebAddress& address, bool json) {
  const std::vector<WebModel> models = list_web_models();
  const auto model = std::ranges::find(models, address.text(), &WebModel::address);
  if (model == models.end())
    fail(ErrorKind::refused, "{} is not here; fetch it with: sluice pull {}", address.text(),
         address.text());
  if (json) return print_json(model_json(*model));
  print(fmt::format("name    {}\npath    {}\nsize    {}\nstate   {}\n",
                    io::printable(model->address), model->directory.string(),
                    format_size(model->bytes), state_of(*model)));
}

void run_show(const ModelVerbOptions& o) {
  if (const std::optional<WebAddress> address = parse_web_address(o.name))
    return show(*address, o.json);
  const CachedModel model = cached(o.name);
  if (o.json) return print_json(model_json(model));
  std::string text =
      fmt::format("name    {}\ncommit  {}\npath    {}\nsize    {}\nstate   {}\n", model.name.text(),
                  model.commit, model.snapshot.string(), format_size(model.bytes), state_of(model));
  for (const std::string& file : model.missing)
    text += fmt::format("missing {}\n", io::printable(file));
  print(text);
}

void run_rm(const ModelVerbOptions& o) {
  const std::optional<WebAddress> address = parse_web_address(o.name);
  const std::string name = address ? address->text() : cached(o.name).name.repository();
  const uint64_t bytes =
      address ? remove_web_model(*address) : remove_cached(cache_directory(), named_here(o.name));
  if (o.json) return print_json({{"name", name}, {"removed_bytes", bytes}});
  print(fmt::format("removed {}, {}\n", name, format_size(bytes)));
}

CLI::App* define(CLI::App& app, const char* name, const char* description, const char* footer,
                 const std::shared_ptr<ModelVerbOptions>& o, bool takes_name) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->footer(footer);
  if (takes_name)
    verb->add_option("NAME", o->name, "The model: ORG/NAME[@REVISION][:TAG], or an address")
        ->required();
  verb->add_flag("--json", o->json, "Print the result as one JSON object");
  return verb;
}

// Returns whether a name of the hub or an address stands for nothing that is here as a whole.
bool is_missing(const std::string& model, io::OutsideLinks links) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return false;
  if (const auto address = parse_web_address(model)) return !find_web_model(*address);
  if (!parse_hub_name(model)) return false;
  try {
    find_model(model, links);
    return false;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::refused) throw;
    return true;
  }
}

void fetch_missing(const std::string& model, const CommonOptions& o, const std::stop_token& stop) {
  if (!is_missing(model, o.outside_links())) return;
  if (const auto address = parse_web_address(model)) {
    fetch(*address, o.quiet, stop);
    return;
  }
  ModelVerbOptions wanted;
  wanted.name = model;
  wanted.quiet = o.quiet;
  fetch(wanted, stop);
}

}  // namespace

void find_or_fetch(CommonOptions& o, const std::stop_token& stop) {
  const std::optional<WebAddress> address = parse_web_address(o.model);
  if (address) fetch_missing(o.model, o, stop);
  const bool weights = !o.texts_only && o.load_format != kDummyFormat;
  o.model_path = find_model(o.model, o.outside_links(),
                            weights ? ModelParts::all : ModelParts::without_weights);
  if (address) o.model = address->text();
}

void add_pull_option(CLI::App& verb, CommonOptions& o, std::stop_token stop,
                     const std::optional<std::string>* draft) {
  begin_group(verb, kModelGroup);
  verb.add_flag(
      "--pull", o.pull,
      draft == nullptr
          ? "Fetch MODEL first where it is missing, as sluice pull does"
          : "Fetch MODEL and the draft model first where they are missing, as sluice pull "
            "does");
  verb.parse_complete_callback([&o, draft, stop = std::move(stop)] {
    if (o.pull) fetch_missing(o.model, o, stop);
    find_or_fetch(o, stop);
    if (o.pull && draft != nullptr && *draft) fetch_missing(**draft, o, stop);
  });
  begin_group(verb, kOwnGroup);
}

void define_pull(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<ModelVerbOptions>();
  CLI::App* verb =
      define(app, "pull", "Fetch a model from the Hugging Face hub",
             "The files go to the cache that all programs of the hub share. HF_ENDPOINT names\n"
             "another server, HF_TOKEN an account, HF_HUB_CACHE or HF_HOME another cache.\n"
             "Examples:\n  sluice pull ORG/NAME\n  sluice pull ORG/NAME-GGUF:Q4_K_M",
             o, true);
  verb->add_option("--include", o->include,
                   "Fetch the files that match this pattern, such as '*Q4_K_M*.gguf'; may be given "
                   "several times (default: what a model is run from)")
      ->allow_extra_args(false);
  verb->add_option("--exclude", o->exclude,
                   "Leave out the files that match this pattern; may be given several times")
      ->allow_extra_args(false);
  verb->add_option("--connections", o->connections, "Fetch this many files at once")
      ->check(CLI::Range(1, 64));
  verb->add_flag("--quiet", o->quiet, "Print no progress, only errors");
  verb->callback([o, stop] { run_pull(*o, stop); });
}

void define_list(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<ModelVerbOptions>();
  define(app, "list", "List the models in the hub's cache", "Example:\n  sluice list", o, false)
      ->callback([o] { run_list(*o); });
}

void define_show(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<ModelVerbOptions>();
  define(app, "show", "Show a model of the hub's cache: its commit, path and size",
         "sluice inspect NAME shows what is in its files.\nExample:\n  sluice show ORG/NAME", o,
         true)
      ->callback([o] { run_show(*o); });
}

void define_rm(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<ModelVerbOptions>();
  define(app, "rm", "Remove a model, with all its revisions, from the hub's cache",
         "Example:\n  sluice rm ORG/NAME", o, true)
      ->callback([o] { run_rm(*o); });
}

}  // namespace sluice::cli
