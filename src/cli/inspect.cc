// sluice inspect: what a checkpoint holds and what binds to what.
#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"
#include "src/plan/compile.h"

namespace sluice::cli {
namespace {

Json stored_json(const io::StoredTensor& t, const io::CheckpointIndex& index) {
  return {{"name", t.name},
          {"dtype", dtype_name(t.dtype)},
          {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())},
          {"bytes", t.bytes},
          {"file", index.files()[t.file].name},
          {"offset", t.offset}};
}

Json tensor_json(const ReadPlan& plan, const TensorPlan& t, const io::CheckpointIndex& index) {
  const ParamPlan& p = plan.params[t.param];
  Json json = stored_json(*t.stored, index);
  json["unit"] = plan.units[p.unit].name;
  json["parameter"] = p.param->path;
  return json;
}

std::string tensor_text(const io::StoredTensor& t, std::string_view parameter) {
  return fmt::format("{:<52} {:<6} {:<18} {:>10}  {}\n", io::printable(t.name), dtype_name(t.dtype),
                     t.shape.str(), format_size(t.bytes), parameter);
}

uint64_t parameters_of(const ReadPlan& plan) {
  uint64_t elements = 0;
  for (const TensorPlan& t : plan.tensors)
    elements += static_cast<uint64_t>(t.stored->shape.elements().value_or(0));
  return elements;
}

// Writes the document as it is made: a checkpoint may have a hundred thousand tensors.
void write_inspection(JsonWriter& json, const Checkpoint& checkpoint, const ReadPlan& plan) {
  const io::CheckpointIndex& index = checkpoint.index();
  auto each = [&](const auto& list, const auto& element) {
    return [&json, &list, element] {
      json.array(list, [&](const auto& item) { json.value(element(item)); });
    };
  };
  auto unit = [](const UnitPlan& u) {
    return Json{{"name", u.name}, {"read_bytes", u.read_bytes}, {"bytes", u.storage_bytes}};
  };
  json.object(
      {{"architecture", checkpoint.model().files.architecture},
       {"parameters", parameters_of(plan)},
       {"bytes", index.total_bytes()},
       {"files", index.files().size()}},
      {{"tensors",
        each(plan.tensors, [&](const TensorPlan& t) { return tensor_json(plan, t, index); })},
       {"kv_scales",
        each(plan.kv_scales, [&](const io::StoredTensor* t) { return stored_json(*t, index); })},
       {"units", each(plan.units, unit)},
       {"ignored_tensors",
        each(plan.ignored, [](const std::string& name) { return Json(name); })}});
}

void run(const CommonOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  check_report_path(o);
  ModelOptions options = model_options(o);
  options.needs_head = false;
  Planner planner(std::move(options));
  Checkpoint& checkpoint = planner.checkpoint();
  const ReadPlan plan = compile(checkpoint.model(), checkpoint.index(), planner.options().quantize,
                                {2 * MiB, 32 * MiB});
  auto write = [&](JsonWriter& json) { write_inspection(json, checkpoint, plan); };
  write_report(o, write, stop);
  if (o.json) return print_json(write);
  print(fmt::format(
      "{}, {:.2f} M parameters, {} in {} files\n", checkpoint.model().files.architecture,
      static_cast<double>(parameters_of(plan)) / 1e6, format_size(checkpoint.index().total_bytes()),
      checkpoint.index().files().size()));
  print(fmt::format("{:<52} {:<6} {:<18} {:>10}  {}\n", "tensor", "dtype", "shape", "bytes",
                    "parameter"));
  for (const TensorPlan& t : plan.tensors)
    print(tensor_text(*t.stored, plan.params[t.param].param->path));
  for (const io::StoredTensor* t : plan.kv_scales) print(tensor_text(*t, "(KV cache)"));
  for (const std::string& name : plan.ignored)
    print(fmt::format("{:<52} known, not read\n", io::printable(name)));
}

}  // namespace

void define_inspect(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<CommonOptions>();
  CLI::App* verb = app.add_subcommand("inspect", "List tensors, units and bindings");
  verb->footer("Example:\n  sluice inspect MODEL --json");
  add_model_options(*verb, *o, stop);
  verb->callback([o, stop] { run(*o, stop); });
}

}  // namespace sluice::cli
