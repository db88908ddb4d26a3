// Operations on the model of a running server: sleep, wake, exchange of weights.
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/serve/service.h"

namespace sluice {
namespace {

using Kind = ModelTask::Kind;

constexpr const char* kModelFields = "the request";

// NAME=VALUE, with & between them. The value of a name; empty: it is not there.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    std::string_view pair = take_until(query, '&');
    if (take_until(pair, '=') == name) return pair;
  }
  return {};
}

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view known) {
  fail(ErrorKind::refused, "{}: {} is {:?}; must be {}", kModelFields, name, value, known);
}

// Reads vLLM's parameters. Its first level keeps the weights in host memory; here they are read
// again.
ModelTask sleep_task(std::string_view query) {
  const std::string_view level = query_value(query, "level"), mode = query_value(query, "mode");
  if (!level.empty() && level != "1" && level != "2") refuse("level", level, "1 or 2 (the same)");
  if (!mode.empty() && mode != "abort" && mode != "wait") refuse("mode", mode, "abort or wait");
  return {.kind = Kind::sleep, .abort = mode != "wait"};
}

// Reads SGLang's parameters.
ModelTask exchange_task(const std::string& text) {
  const Json json = parse_json(text, kModelFields);
  const JsonFields body(json, kModelFields);
  for (const auto& [key, value] : json.items()) {
    if (key != "model_path" && key != "abort_all_requests")
      fail(ErrorKind::refused, "{}: unknown parameter: {}", kModelFields, key);
  }
  return {.kind = Kind::exchange,
          .model = body.string("model_path"),
          .abort = body.boolean_or("abort_all_requests", false)};
}

Reply done(const char* message) {
  const Json json{{"success", true}, {"message", message}};
  return {.body = json.dump()};
}

}  // namespace

bool Service::change_phase(Phase from, Phase to) {
  return phase_.compare_exchange_strong(from, to);
}

// Whatever comes of it, the phase is that of the loop, unless the server ends.
void Service::perform(ModelTask task, Phase meanwhile) {
  const Phase before = phase_;
  if (before == Phase::draining || !change_phase(before, meanwhile))
    throw Refusal(503, "the server is about to end", {}, 5);
  auto settle = [&] {
    change_phase(meanwhile, model_->loop.asleep() ? Phase::sleeping : Phase::ready);
  };
  try {
    model_->loop.perform(std::move(task));
  } catch (...) {
    settle();
    throw;
  }
  settle();
}

Reply Service::change_model(const Route& route, std::string_view query, const std::string& body) {
  if (route.endpoint == Endpoint::sleep) {
    perform(sleep_task(query), Phase::sleeping);
    return done("the model sleeps");
  }
  if (route.endpoint == Endpoint::wake_up) {
    if (!query_value(query, "tags").empty())
      fail(ErrorKind::refused, "{}: tags are not supported: a model wakes whole", kModelFields);
    perform({.kind = Kind::wake}, Phase::sleeping);
    return done("the model is awake");
  }
  if (phase_ == Phase::sleeping)
    throw Refusal(409, "the model sleeps; /wake_up wakes it, and then weights can be exchanged");
  ModelTask task = exchange_task(body);
  perform(std::move(task), Phase::exchanging);
  return done("the weights have been exchanged");
}

}  // namespace sluice
