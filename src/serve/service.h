// The server without the network: routes, phases, and requests to answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/engine/engine_loop.h"
#include "src/load/streamer.h"
#include "src/serve/apis/answer.h"
#include "src/serve/metrics.h"
#include "src/serve/refusal.h"
#include "src/serve/request_memory.h"

namespace sluice {

enum class Endpoint : uint8_t {
  completions,
  chat_completions,
  messages,
  count_tokens,
  input_tokens,
  responses,
  embeddings,
  sleep,
  wake_up,
  is_sleeping,
  update_weights,
  tokenize,
  detokenize,
  tokenizer_info,
  models,
  health,
  metrics,
  memory,
  page,  // the last one; /openapi.json describes all others
};

// The condition for a route to be answered.
enum class Needs : uint8_t {
  nothing,
  model,    // it has been loaded once, and the server does not end
  weights,  // and it does not sleep
  admin,    // the model, and the permission to change it
};

struct Route {
  std::string_view path;
  std::string_view method;
  Endpoint endpoint = Endpoint::health;
  Needs needs = Needs::weights;
  bool needs_key = true;  // where there is one
  Dialect dialect = Dialect::openai;
};
// Finds the route of a path without its query. Null: there is none.
const Route* find_route(std::string_view path);

// A whole answer.
struct Reply {
  int status = 200;
  std::string body = {};
  std::string_view type = "application/json";
  int retry_after = 0;            // seconds; 0: nothing is said
  std::string_view etag = {};     // of what a client may keep; empty: nothing
  std::string_view headers = {};  // further lines, each with its end
};
Reply reply_of(const Refusal& refusal, Dialect dialect, std::string_view request_id);

// The parts that serve a model, once it is loaded. All outlive the service.
struct ServedModel {
  Planner& planner;
  EngineLoop& loop;
  ChatTemplate* chat_template = nullptr;  // null: it has none
  std::string no_chat;                    // why
  SamplingParams defaults;                // where a request says nothing
  int64_t max_model_len = 0;              // tokens of a sequence
  bool lookup = false;                    // tokens are drafted ahead
  EmbeddingRules embedding = {};
  bool begins_in_thoughts = false;  // what it answers in a chat
};

enum class Phase : uint8_t {
  loading,
  ready,
  sleeping,    // the model's memory has been given back, or is about to be
  exchanging,  // its weights
  draining,
};

class Service {
 public:
  struct Options {
    bool admin = false;     // requests may let the model sleep, and exchange its weights
    bool strict = false;    // parameters without an effect are refused
    std::string path = {};  // a further name of the model, which is told to nobody; empty: none
    std::string version = {};
  };
  // `names`: what requests may call the model; answers use the first. `memory` outlives this.
  Service(std::vector<std::string> names, RequestMemory& memory, Options options);

  // From one thread, in this order. `progress` outlives the phase.
  void set_loading(const LoadProgress& progress) { progress_ = &progress; }
  void set_ready(ServedModel model);
  void set_draining() { phase_ = Phase::draining; }
  Phase phase() const { return phase_; }

  // Refusal(503) where the phase has no answer for the route; Refusal(404) for what is not
  // permitted.
  void check_phase(const Route& route) const;

  // On the network's thread: what is known at once. `path` may name a model.
  Reply look(const Route& route, std::string_view path, int64_t connections);
  Metrics& metrics() { return metrics_; }

  // On another thread, as it may take long: always the same one, and another for what changes the
  // model. What reading it takes is taken from `share`, which has the body already; at the end it
  // is what the request holds until its tokens come. `query` is what its URL has behind "?". Throws
  // Refusal or Error.
  std::variant<Reply, std::unique_ptr<Answer>> open(const Route& route, std::string_view query,
                                                    std::string body, RequestMemory::Share& share);

  EngineLoop& loop() { return model_->loop; }

 private:
  struct Body;

  Reply health() const;
  Reply api_document() const;
  bool change_phase(Phase from, Phase to);
  Reply change_model(const Route& route, std::string_view query, const std::string& body);
  void perform(ModelTask task, Phase meanwhile);
  Reply models(std::string_view path) const;
  Reply memory();
  Json model_json() const;
  std::string check_model(const OrderedFields& body) const;
  CompletionHead head(const std::string& prefix, std::string model);
  RequestContext context(Api api);
  ChatTemplate& chat_template() const;
  std::unique_ptr<Answer> open_answer(const Route& route, const Body& body, std::string model);
  Reply tokenize(const Body& body);
  std::string rendered(const Body& body) const;
  Reply count_tokens(Endpoint endpoint, const Body& body);
  Reply detokenize(const Body& body) const;
  Reply tokenizer_info() const;

  std::vector<std::string> names_;
  RequestMemory& memory_;
  Options options_;
  UnknownParameters unknown_;  // of the thread of open()
  int64_t created_;
  std::atomic<Phase> phase_{Phase::loading};
  std::atomic<const LoadProgress*> progress_{nullptr};
  std::optional<ServedModel> model_;  // from Phase::ready on
  int64_t longest_token_ = 0;         // bytes
  std::mt19937_64 random_;            // of ids and seeds
  Metrics metrics_;
  // The network thread's view of where weights lie, made anew when that has changed.
  std::shared_ptr<const Placed> shown_;
  Json units_;
};

}  // namespace sluice
