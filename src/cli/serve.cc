// sluice serve: a model behind the APIs that clients speak.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/chat/chat_options.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"
#include "src/cli/ranks.h"
#include "src/cli/run_report.h"
#include "src/cli/verbs.h"
#include "src/engine/engine_loop.h"
#include "src/engine/sampling_defaults.h"
#include "src/hub/web_model.h"
#include "src/memory/buffer.h"
#include "src/serve/access.h"
#include "src/serve/http/server.h"
#include "src/serve/serve_shape.h"

namespace sluice::cli {
namespace {

struct ServeOptions : CommonOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string api_key;
  bool no_api_key = false;
  bool admin_api = false;
  bool strict = false;
  std::string access_log;
  std::vector<std::string> names;
  std::vector<std::string> origins;
  std::vector<std::string> hosts;
  std::optional<std::string> chat_template;
  ToolFormat tool_format = ToolFormat::automatic;
  std::optional<std::string> pooling;
  std::optional<std::string> reasoning_parser;
  int64_t max_num_seqs = 64;
  int64_t max_queue = 1024;
  int64_t max_connections = 4096;
  std::string max_request_bytes = "4MiB";
  std::optional<std::string> request_memory;
  double client_timeout = 30;
  double keep_alive = 5;
  double drain_timeout = 30;
};

constexpr const char* kBeginsInThoughts = "deepseek_r1";
const std::map<std::string, Pooling> kPoolingNames{{"last", Pooling::last},
                                                   {"mean", Pooling::mean},
                                                   {"cls", Pooling::first},
                                                   {"max", Pooling::max}};

std::chrono::milliseconds milliseconds(double seconds) {
  constexpr double kMilliseconds = 1000;
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * kMilliseconds));
}

// Whoever can reach the address can use the model, and so the machine.
void check_access(const ServeOptions& o) {
  for (const std::string& host : o.hosts) {
    if (!host_name(host))
      fail(ErrorKind::usage, "--allowed-host {}: must be a name such as example.org", host);
  }
  for (const std::string& origin : o.origins) {
    if (origin != "*" && origin != "null" && origin.find("://") == std::string::npos)
      fail(ErrorKind::usage,
           "--cors-origin {}: must be an origin such as https://example.org, or *", origin);
  }
  const bool local = is_loopback(o.host);
  if (!local && o.admin_api && o.api_key.empty()) {
    fail(ErrorKind::usage,
         "--admin-api: other machines can reach --host {}, and could exchange the model; give an "
         "--api-key",
         o.host);
  }
  if (local || !o.api_key.empty() || o.no_api_key) return;
  fail(ErrorKind::usage,
       "--host {}: other machines can reach this address; give an --api-key, or --no-api-key to "
       "serve everybody",
       o.host);
}

HttpOptions http_options(const ServeOptions& o) {
  constexpr uint64_t kMostRequestBytes = GiB;
  HttpOptions http{.host = o.host,
                   .port = o.port,
                   .api_key = o.api_key,
                   .origins = o.origins,
                   .hosts = o.hosts,
                   .access_log = o.access_log,
                   .max_connections = o.max_connections,
                   .max_sequences = o.max_num_seqs + o.max_queue,
                   .max_request_bytes = parse_size("--max-request-bytes", o.max_request_bytes),
                   .client_timeout = milliseconds(o.client_timeout),
                   .keep_alive = milliseconds(o.keep_alive)};
  if (http.max_request_bytes == 0 || http.max_request_bytes > kMostRequestBytes) {
    fail(ErrorKind::usage, "--max-request-bytes {}: must be more than 0 and at most 1GiB",
         o.max_request_bytes);
  }
  return http;
}

// The directory's name, unless others are given; or the model's name.
std::vector<std::string> names_of(const ServeOptions& o) {
  if (!o.names.empty()) return o.names;
  const std::optional<WebAddress> address = parse_web_address(o.model);
  if (o.model_path != o.model && !address) return {o.model};  // a name of the hub
  const std::filesystem::path path =
      std::filesystem::absolute(address ? address->text() : o.model).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  return {last.filename().string()};
}

Service::Options service_options(const ServeOptions& o) {
  Service::Options options{.admin = o.admin_api, .strict = o.strict};
  if (o.names.empty()) options.path = o.model;
  options.version = SLUICE_VERSION;
  return options;
}

constexpr uint64_t kLeastRequestMemory = 2 * MiB;

// Returns the memory for connections and requests [bytes], by default a share of the budget.
uint64_t request_memory(const ServeOptions& o, const Planner& planner) {
  constexpr uint64_t kShare = 16, kMost = 256 * MiB;
  const uint64_t bytes =
      o.request_memory
          ? parse_size("--request-memory", *o.request_memory, planner.machine().budget())
          : std::clamp(planner.machine().budget() / kShare, kLeastRequestMemory, kMost);
  if (bytes < kLeastRequestMemory) {
    fail(ErrorKind::usage, "--request-memory {}: must be at least {}", *o.request_memory,
         format_size(kLeastRequestMemory));
  }
  return bytes;
}

// A server, from its port to its end. The network ends before what it uses.
class Server {
 public:
  Server(const ServeOptions& options, std::stop_token stop, const std::atomic<int>& shrink)
      : options_(options),
        stop_(std::move(stop)),
        shrink_(shrink),
        memory_(kLeastRequestMemory),
        service_(names_of(options), memory_, service_options(options)),
        network_(http_options(options), service_, memory_) {}

  std::string url() const { return network_.url(); }
  void load();
  // Until it is asked to stop, or the engine fails; then to the end of the answers.
  void run();

 private:
  void open_template();
  ServeShape choose_shape();
  SamplingParams defaults() const;
  EmbeddingRules embedding_rules() const;
  void wait_for_the_end();
  void report();

  const ServeOptions& options_;
  std::stop_token stop_;
  std::stop_source end_passes_;  // and loads; after stop_, answers may still end
  const std::atomic<int>& shrink_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<Planner> planner_;
  Lease held_;
  LoadProgress progress_;
  std::optional<LoadedModel> model_;
  std::optional<ChatTemplate> chat_template_;
  std::string no_chat_;
  int64_t max_model_len_ = 0;
  int64_t sequences_ = 0;
  std::optional<EngineLoop> loop_;
  RequestMemory memory_;
  Service service_;
  HttpServer network_;
};

void Server::load() {
  service_.set_loading(progress_);
  ModelOptions options = model_options(options_);
  options.needs_head = false;
  options.touch = Buffer::Touch::lazily;  // who asks first does not wait for the room of many
  planner_.emplace(std::move(options));
  Planner& planner = *planner_;
  planner.checkpoint().need_tokenizer();
  open_template();
  const ServeShape shape = choose_shape();
  max_model_len_ = shape.max_model_len;
  sequences_ = shape.width.sequences;
  const std::shared_ptr<const Placed> placed = planner.place(shape.width.shape);
  held_ = planner.machine().ledger().lease(Place::host, Use::activations, "requests",
                                           Buffer::charged_bytes(memory_.bytes()));
  const ProgressDisplay display(counts_of(progress_), options_.quiet);
  const std::stop_callback on_stop(stop_, [this] { end_passes_.request_stop(); });
  model_.emplace(planner, placed, end_passes_.get_token(), &progress_);
}

// A small budget has room for as much as it must have of requests, where it has none for more.
ServeShape Server::choose_shape() {
  const std::optional<std::string>& length = options_.max_model_len;
  const bool chosen = length && (*length != "auto" || planner_->options().longest_model_len);
  auto choose = [&](uint64_t bytes) {
    ServeShape shape = choose_serve_shape(*planner_, chosen ? planner_->max_model_len() : 0,
                                          options_.max_num_seqs, bytes);
    memory_.enlarge(bytes);
    return shape;
  };
  const uint64_t wanted = request_memory(options_, *planner_);
  if (options_.request_memory || wanted == kLeastRequestMemory) return choose(wanted);
  try {
    return choose(wanted);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::no_fit) throw;
    return choose(kLeastRequestMemory);
  }
}

// A model without one completes texts.
void Server::open_template() {
  try {
    chat_template_.emplace(open_chat_template({.messages = {},
                                               .chat_template = options_.chat_template,
                                               .tools = {},
                                               .variables = {},
                                               .tool_format = options_.tool_format},
                                              planner_->checkpoint().chat_files(), options_.model,
                                              stop_));
    log::info("tools: {}", chat_template_->tool_support().description());
  } catch (const Error& e) {
    if (options_.chat_template || e.kind() != ErrorKind::refused) throw;
    no_chat_ = e.what();
    chat_template_.reset();
  }
}

SamplingParams Server::defaults() const {
  SamplingParams sampling{.temperature = 1};
  if (const std::optional<Json> config = planner_->checkpoint().generation_config())
    take_sampling_defaults(*config, [](const std::string&) { return false; }, sampling);
  return sampling;
}

// Returns the rules of the model's files; --pooling replaces theirs.
EmbeddingRules Server::embedding_rules() const {
  EmbeddingRules rules = planner_->checkpoint().embedding_rules();
  if (!rules.refusal.empty()) {
    log::warning("{}: {}", rules.refusal,
                 options_.pooling ? "only --pooling is applied" : "/v1/embeddings is refused");
  }
  if (!options_.pooling) return rules;
  rules.refusal.clear();
  rules.pooling = kPoolingNames.at(*options_.pooling);
  return rules;
}

void Server::run() {
  loop_.emplace(*model_, sequences_, shrink_, end_passes_.get_token());
  network_.attach(*loop_);
  service_.set_ready({.planner = *planner_,
                      .loop = *loop_,
                      .chat_template = chat_template_ ? &*chat_template_ : nullptr,
                      .no_chat = no_chat_,
                      .defaults = defaults(),
                      .max_model_len = max_model_len_,
                      .lookup = model_->memory_plan().streams(),
                      .embedding = embedding_rules(),
                      .begins_in_thoughts = options_.reasoning_parser == kBeginsInThoughts});
  log::info("ready at {}: sequences of up to {} tokens, {} at once, {} of KV cache", url(),
            max_model_len_, sequences_, format_size(model_->memory_plan().all_kv_cache()));
  wait_for_the_end();
  constexpr std::chrono::seconds kErrors{2};  // for clients to take the errors of cut streams
  service_.set_draining();
  network_.drain();
  const bool failed = !loop_->failure().empty();
  if (failed || !network_.wait_until_idle(milliseconds(options_.drain_timeout))) {
    end_passes_.request_stop();
    loop_->stop();
    network_.wait_until_idle(kErrors);
  }
  loop_->stop();
  report();
  if (failed) fail(ErrorKind::runtime, "{}", loop_->failure());
}

void Server::wait_for_the_end() {
  constexpr std::chrono::milliseconds kLook{200};
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!stop_.stop_requested() && loop_->failure().empty())
    never.wait_for(lock, stop_, kLook, [] { return false; });
}

void Server::report() {
  const EngineStats stats = loop_->status().stats;
  model_->learn_pass(stats.pass_seconds);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  RunReport report("serve", options_, *model_, engine_json(stats, seconds));
  report.save({});
  log::info("{}\nserved     {} tokens of prompts, {} of answers", report.summary(),
            stats.prompt_tokens, stats.generated_tokens);
}

void run(const ServeOptions& o, const std::stop_token& stop, const std::atomic<int>& shrink) {
  apply_log_level(o);
  check_report_path(o);
  check_access(o);
  mallopt(M_ARENA_MAX, 1);  // what a thread gives back is there for all
  Server server(o, stop, shrink);
  if (o.json) {
    print_json({{"url", server.url()}});
  } else {
    print(server.url() + "\n");
  }
  server.load();
  server.run();
}

void add_network_options(CLI::App& verb, ServeOptions& o) {
  verb.add_option("--host", o.host,
                  "Listen at this address; any but loopback needs --api-key or --no-api-key");
  verb.add_option("--port", o.port, "Listen at this port; 0 picks a free one and prints it")
      ->check(CLI::Range(0, 65535));
  verb.add_option(
      "--api-key", o.api_key,
      "Answer only requests with this key; set SLUICE_API_KEY instead to hide it from the "
      "process list");
  verb.add_flag("--no-api-key", o.no_api_key,
                "Take requests from everybody who can reach --host (default: a host other than "
                "loopback needs --api-key)");
  verb.add_flag("--admin-api", o.admin_api,
                "Answer /sleep, /wake_up, /is_sleeping and /update_weights_from_disk");
  verb.add_flag("--strict", o.strict,
                "Refuse requests with parameters that have no effect here, instead of a warning in "
                "the log");
  verb.add_option("--served-model-name", o.names,
                  "Call the model this; may be given several times (default: the name of MODEL's "
                  "directory or file)")
      ->allow_extra_args(false);
  verb.add_option(
          "--cors-origin", o.origins,
          "Allow requests from pages of this origin, such as https://example.org; * allows all; "
          "may be given several times")
      ->allow_extra_args(false);
  verb.add_option(
          "--allowed-host", o.hosts,
          "Answer also requests to this name of the server, such as example.org (checked where "
          "--host is loopback and no key is set); * allows all; may be given several times")
      ->allow_extra_args(false);
  verb.add_option("--access-log", o.access_log,
                  "Add a line of JSON to this file for each request; - for standard output")
      ->type_name("FILE");
  verb.add_option("--chat-template", o.chat_template,
                  "Use the chat template in this file instead of the model's")
      ->type_name("FILE");
  add_tool_format(verb, o.tool_format);
  verb.add_option(
          "--reasoning-parser", o.reasoning_parser,
          "Find thoughts in answers by the chat template (auto), or take all up to </think> "
          "as thoughts (deepseek_r1)")
      ->check(CLI::IsMember({"auto", kBeginsInThoughts}));
  verb.add_option(
          "--pooling", o.pooling,
          "Pool embeddings: the last token, the mean or maximum of all tokens, or the first "
          "token (cls) (default: as modules.json says, else last)")
      ->check(CLI::IsMember(kPoolingNames));
}

void add_limit_options(CLI::App& verb, ServeOptions& o) {
  const auto count = CLI::Range(int64_t{1}, int64_t{65536});
  const auto seconds = CLI::Range(0.01, 86400.0);
  verb.add_option("--max-num-seqs", o.max_num_seqs,
                  "Run at most this many sequences at once; the budget may allow fewer")
      ->check(count);
  verb.add_option("--max-queue", o.max_queue,
                  "Queue at most this many further sequences; more get status 429")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  verb.add_option("--max-connections", o.max_connections,
                  "Keep at most this many connections; more get status 503")
      ->check(count);
  verb.add_option("--max-request-bytes", o.max_request_bytes,
                  "Refuse requests whose body is longer than this")
      ->type_name("SIZE");
  verb.add_option("--request-memory", o.request_memory,
                  "Keep connections, requests and answers within this part of the budget; more get "
                  "status 503 (default: a sixteenth, 2MiB to 256MiB)")
      ->type_name("SIZE");
  verb.add_option(
          "--client-timeout", o.client_timeout,
          "Close a connection that neither sends its request nor takes its answer for this long "
          "[seconds]")
      ->check(seconds);
  verb.add_option("--keep-alive", o.keep_alive,
                  "Send a comment on a stream that is silent for this long [seconds]")
      ->check(seconds);
  verb.add_option("--drain-timeout", o.drain_timeout,
                  "Time that running answers have to end after a signal to stop [seconds]")
      ->check(CLI::Range(0.0, 86400.0));
}

}  // namespace

void define_serve(CLI::App& app, std::stop_token stop, const std::atomic<int>& shrink) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* verb =
      app.add_subcommand("serve", "Serve a model over the APIs of OpenAI and Anthropic");
  verb->footer(
      "The URL is printed before the model is loaded; /health tells when it is ready.\n"
      "Examples:\n"
      "  sluice serve MODEL --memory 8GiB --quantization fp8\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -d '{\"stream\": true,\n"
      "    \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'");
  begin_group(*verb, kOwnGroup);
  add_network_options(*verb, *o);
  add_limit_options(*verb, *o);
  add_model_options(*verb, *o, stop);
  add_pull_option(*verb, *o, stop);
  verb->callback([o, stop, &shrink] { on_ranks(*o, stop, false, [&] { run(*o, stop, shrink); }); });
}

}  // namespace sluice::cli
