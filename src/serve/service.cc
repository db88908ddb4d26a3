#include "src/serve/service.h"

#include <fmt/chrono.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "src/base/error.h"
#include "src/memory/report.h"
#include "src/plan/units_json.h"
#include "src/serve/apis/chat_completion.h"
#include "src/serve/apis/embeddings.h"
#include "src/serve/apis/messages_request.h"
#include "src/serve/apis/neighbours.h"
#include "src/serve/apis/ordered_json.h"
#include "src/serve/apis/request_fields.h"
#include "src/serve/apis/responses_request.h"
#include "src/serve/apis/tokens_json.h"
#include "src/serve/batch/batch_file.h"
#include "src/serve/page/page.h"

namespace sluice {
namespace {

constexpr const char* kWhere = "the request";
constexpr std::string_view kModelPath = "/v1/models/";

constexpr Route kRoutes[] = {
    {"/v1/completions", "POST", Endpoint::completions},
    {"/v1/chat/completions", "POST", Endpoint::chat_completions},
    {"/v1/messages", "POST", Endpoint::messages, Needs::weights, true, Dialect::anthropic},
    {"/v1/messages/count_tokens", "POST", Endpoint::count_tokens, Needs::model, true,
     Dialect::anthropic},
    {"/v1/responses", "POST", Endpoint::responses},
    {"/v1/responses/input_tokens", "POST", Endpoint::input_tokens, Needs::model},
    {"/v1/embeddings", "POST", Endpoint::embeddings},
    {"/v1/models", "GET", Endpoint::models, Needs::nothing},
    {"/v1/memory", "GET", Endpoint::memory, Needs::model},
    {"/tokenize", "POST", Endpoint::tokenize, Needs::model},
    {"/detokenize", "POST", Endpoint::detokenize, Needs::model},
    {"/tokenizer_info", "GET", Endpoint::tokenizer_info, Needs::model},
    {"/health", "GET", Endpoint::health, Needs::nothing, false},
    {"/metrics", "GET", Endpoint::metrics, Needs::model, false},
    // vLLM's names, and SGLang's of the last one.
    {"/sleep", "POST", Endpoint::sleep, Needs::admin},
    {"/wake_up", "POST", Endpoint::wake_up, Needs::admin},
    {"/is_sleeping", "GET", Endpoint::is_sleeping, Needs::admin},
    {"/update_weights_from_disk", "POST", Endpoint::update_weights, Needs::admin},
};

constexpr Route kPage{"/", "GET", Endpoint::page, Needs::nothing, false};

Reply page(std::string_view path) {
  const PageFile file = find_page_file(path);
  return {.body = std::string(file.bytes),
          .type = file.content_type,
          .etag = file.etag,
          .headers = kPageHeaders};
}

Reply json_reply(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

// Makes a request of another API the same request for chat completions.
void make_chat(Endpoint endpoint, OrderedJson& body) {
  const bool other = endpoint == Endpoint::messages || endpoint == Endpoint::count_tokens ||
                     endpoint == Endpoint::responses || endpoint == Endpoint::input_tokens;
  if (!other) return;
  refuse_large_objects(body, kWhere);
  if (endpoint == Endpoint::responses || endpoint == Endpoint::input_tokens) {
    body = chat_of_responses(std::move(body), kWhere);
  } else {
    body = chat_of_messages(std::move(body), kWhere, endpoint == Endpoint::messages);
  }
}

// In JSON 5.0 is an integer. Of a value, and of lists in it.
void let_be_integers(OrderedJson& json, int nesting = 1) {
  constexpr double kMost = 9007199254740992;  // up to which each is a double
  constexpr int kNesting = 3;
  if (json.is_number_float()) {
    const auto value = json.get<double>();
    if (value != std::floor(value) || std::abs(value) > kMost) return;
    const auto whole = static_cast<int64_t>(value);
    json = whole < 0 ? OrderedJson(whole) : OrderedJson(static_cast<uint64_t>(whole));
  } else if (json.is_array() && nesting < kNesting) {
    for (OrderedJson& inner : json) let_be_integers(inner, nesting + 1);
  }
}

// `text` with all numbers that stand for what the model decides replaced by these.
void put_number(std::string& text, std::string_view mark, int64_t number) {
  const std::string written = std::to_string(number);
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + written.size()))
    text.replace(at, mark.size(), written);
}

bool is_chat(Endpoint endpoint) {
  return endpoint == Endpoint::chat_completions || endpoint == Endpoint::messages ||
         endpoint == Endpoint::count_tokens || endpoint == Endpoint::responses ||
         endpoint == Endpoint::input_tokens || endpoint == Endpoint::tokenize;
}

}  // namespace

const Route* find_route(std::string_view path) {
  if (!find_page_file(path).content_type.empty()) return &kPage;
  if (path.starts_with(kModelPath)) path = "/v1/models";
  const auto* found = std::ranges::find(kRoutes, path, &Route::path);
  return found == std::end(kRoutes) ? nullptr : found;
}

Reply reply_of(const Refusal& refusal, Dialect dialect, std::string_view request_id) {
  Reply reply = json_reply(refusal_json(dialect, refusal, request_id));
  reply.headers = refusal.headers;
  reply.status = refusal.status;
  reply.retry_after = refusal.retry_after;
  return reply;
}

// A request's body, and the memory that it takes.
struct Service::Body {
  const OrderedJson& json;
  OrderedFields fields;
  uint64_t bytes;  // of its text
  ReserveMemory reserve;
  const Json& echo;  // what the answer repeats
};

Service::Service(std::vector<std::string> names, RequestMemory& memory, Options options)
    : names_(std::move(names)),
      memory_(memory),
      options_(std::move(options)),
      unknown_(options_.strict),
      created_(static_cast<int64_t>(std::time(nullptr))),
      random_(std::random_device{}()) {}

void Service::set_ready(ServedModel model) {
  longest_token_ = longest_token(model.planner.checkpoint().tokenizer());
  metrics_.set_facts({.block_size = model.planner.options().block_size,
                      .cache_dtype = std::string(dtype_name(model.planner.kv_dtype())),
                      .version = options_.version,
                      .max_model_len = model.max_model_len});
  model_.emplace(std::move(model));
  change_phase(Phase::loading, Phase::ready);
}

void Service::check_phase(const Route& route) const {
  constexpr int kSoon = 5;
  if (route.needs == Needs::nothing) return;
  const Phase phase = phase_;
  if (route.needs == Needs::admin && !options_.admin)
    throw Refusal(404, fmt::format("{} is not answered here without --admin-api", route.path));
  if (phase == Phase::loading)
    throw Refusal(503, "the model is still being loaded; /health tells how far", {}, kSoon);
  if (phase == Phase::draining && route.method == "POST")
    throw Refusal(503, "the server is about to end", {}, kSoon);
  if (route.needs != Needs::weights) return;
  if (phase == Phase::sleeping)
    throw Refusal(503, "the model sleeps; /wake_up wakes it", {}, kSoon);
  if (phase == Phase::exchanging)
    throw Refusal(503, "the model's weights are being exchanged", {}, kSoon);
}

Reply Service::look(const Route& route, std::string_view path, int64_t connections) {
  switch (route.endpoint) {
    case Endpoint::models:
      return models(path);
    case Endpoint::memory:
      return memory();
    case Endpoint::page:
      return path == kApiPath && phase_ != Phase::loading ? api_document() : page(path);
    case Endpoint::tokenizer_info:
      return tokenizer_info();
    case Endpoint::is_sleeping:
      return json_reply({{"is_sleeping", phase_ == Phase::sleeping}});
    case Endpoint::metrics: {
      const Ledger& ledger = model_->planner.machine().ledger();
      return {.body = metrics_.text(names_.front(), model_->loop.status(),
                                    {.connections = connections,
                                     .request_memory = memory_.used(),
                                     .memory_used = ledger.used(Place::host),
                                     .memory_budget = ledger.budget(Place::host).value_or(0),
                                     .sleeping = phase_ == Phase::sleeping}),
              .type = "text/plain; version=0.0.4; charset=utf-8"};
    }
    default:
      return health();
  }
}

// With the numbers of the model that is served, in the places of those that the file has for them.
Reply Service::api_document() const {
  constexpr std::string_view kLastId = "2147483646", kHidden = "2147483645",
                             kLongest = "2147483644", kShortest = "2147483643";
  Reply reply = page(kApiPath);
  const DecoderSpec& spec = model_->planner.checkpoint().spec();
  put_number(reply.body, kLastId, spec.vocab_size - 1);
  put_number(reply.body, kHidden, spec.hidden_size);
  put_number(reply.body, kLongest, model_->max_model_len);
  // An empty text is a prompt where the tokenizer puts a token before it.
  const Tokenizer* tokenizer = model_->planner.checkpoint().tokenizer();
  const bool begins = tokenizer != nullptr && !tokenizer->encode("", true).empty();
  put_number(reply.body, kShortest, begins ? 0 : 1);
  reply.etag = {};
  return reply;
}

Reply Service::health() const {
  switch (phase_.load()) {
    case Phase::ready:
      return json_reply({{"status", "ready"}});
    case Phase::sleeping:
      return json_reply({{"status", "sleeping"}});
    case Phase::exchanging:
      return json_reply({{"status", "exchanging"}});
    case Phase::draining: {
      Reply reply = json_reply({{"status", "draining"}});
      reply.status = 503;
      return reply;
    }
    case Phase::loading:
      break;
  }
  Json json{{"status", "loading"}};
  if (const LoadProgress* progress = progress_) {
    const uint64_t total = progress->bytes_total, done = progress->bytes_done;
    json["bytes_total"] = total;
    json["bytes_done"] = done;
    json["progress"] = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
  }
  Reply reply = json_reply(json);
  reply.status = 503;
  reply.retry_after = 1;
  return reply;
}

Json Service::model_json() const {
  Json json{
      {"id", names_.front()}, {"object", "model"}, {"created", created_}, {"owned_by", "sluice"}};
  json["type"] = "model";  // and so on: Anthropic's
  json["created_at"] = fmt::format("{:%FT%TZ}", fmt::gmtime(created_));
  if (phase_ != Phase::loading) json["max_model_len"] = model_->max_model_len;
  return json;
}

Reply Service::models(std::string_view path) const {
  Json list = Json::array();
  for (const std::string& name : names_) {
    list.push_back(model_json());
    list.back()["id"] = list.back()["display_name"] = name;
    if (path.starts_with(kModelPath) && path.substr(kModelPath.size()) == name)
      return json_reply(list.back());
  }
  if (path.starts_with(kModelPath))
    throw Refusal(404, "unknown model; /v1/models lists the models", "model_not_found");
  return json_reply({{"object", "list"},
                     {"data", list},
                     {"first_id", names_.front()},
                     {"last_id", names_.back()},
                     {"has_more", false}});
}

Reply Service::memory() {
  const Planner& planner = model_->planner;
  const Ledger& ledger = model_->planner.machine().ledger();
  const LoopStatus status = model_->loop.status();
  Json json = to_json(measure_memory(ledger, Timeline::left_out, status.predicted_peak,
                                     status.predicted_device_peak));
  json["used"] = {{"host", ledger.used(Place::host)}, {"device", ledger.used(Place::device)}};
  json["requests"] = {{"bytes", memory_.used()}, {"limit", memory_.bytes()}};
  json["kv_blocks"] = {{"used", status.blocks_used},
                       {"kept", status.blocks_kept},
                       {"all", status.blocks},
                       {"tokens", planner.options().block_size}};
  json["disk"] = {{"bytes_read", planner.machine().timeline().bytes()}};
  if (shown_ != status.placed) {
    shown_ = status.placed;
    const char* computes_in = ledger.budget(Place::device) ? "device" : "host";
    units_ = units_json(*shown_->read, shown_->shape, computes_in);
  }
  json["units"] = units_;
  return json_reply(json);
}

// The name that the answer repeats.
std::string Service::check_model(const OrderedFields& body) const {
  const std::string name = body.string_or("model", names_.front());
  if (!options_.path.empty() && name == options_.path) return names_.front();
  if (std::ranges::find(names_, name) == names_.end()) {
    throw Refusal(404,
                  fmt::format("unknown model {:?}; this server has {:?}", name, names_.front()),
                  "model_not_found");
  }
  return name;
}

CompletionHead Service::head(const std::string& prefix, std::string model) {
  return {.id = fmt::format("{}{:016x}", prefix, random_()),
          .model = std::move(model),
          .created = static_cast<int64_t>(std::time(nullptr))};
}

RequestContext Service::context(Api api) {
  RequestContext context{.checkpoint = model_->planner.checkpoint(),
                         .max_model_len = model_->max_model_len,
                         .api = api,
                         .lookup = model_->lookup,
                         .embedding = model_->embedding,
                         .begins_in_thoughts = model_->begins_in_thoughts,
                         .defaults = model_->defaults,
                         .unknown = &unknown_};
  context.defaults.seed = random_();
  return context;
}

ChatTemplate& Service::chat_template() const {
  if (model_->chat_template == nullptr) fail(ErrorKind::refused, "{}", model_->no_chat);
  return *model_->chat_template;
}

std::variant<Reply, std::unique_ptr<Answer>> Service::open(const Route& route,
                                                           std::string_view query, std::string text,
                                                           RequestMemory::Share& share) {
  if (route.needs == Needs::admin) return change_model(route, query, text);
  const uint64_t parsing = parse_bytes(text);
  uint64_t most = 0;
  auto reserve = [&, before = share.bytes() + parsing](uint64_t bytes) {
    most = std::max(most, bytes);
    if (!share.resize(before + most)) throw Refusal(no_room(before + most, memory_.bytes()));
  };
  reserve(0);
  OrderedJson json = parse_ordered(text, kWhere);
  const uint64_t bytes = text.size();
  text = {};
  const Json echo = route.endpoint == Endpoint::responses ? response_echo(json) : Json::object();
  make_chat(route.endpoint, json);
  const bool chat = is_chat(route.endpoint);
  if (chat || route.endpoint == Endpoint::completions) put_in_our_names(json, kWhere, chat);
  if (json.is_object())
    for (auto& [key, value] : json.items())
      if (key != "documents") let_be_integers(value);  // which templates show as they are
  const Body body{json, OrderedFields(json, kWhere), bytes, reserve, echo};
  std::string model = check_model(body.fields);
  if (route.endpoint == Endpoint::tokenize) return tokenize(body);
  if (route.endpoint == Endpoint::detokenize) return detokenize(body);
  if (route.endpoint == Endpoint::count_tokens || route.endpoint == Endpoint::input_tokens)
    return count_tokens(route.endpoint, body);
  std::unique_ptr<Answer> answer = open_answer(route, body, std::move(model));
  const Completion& asked = answer->asked();
  const uint64_t held = held_bytes(asked, longest_token_, 0) +
                        vectors_bytes(asked, model_->planner.checkpoint().spec().output_size());
  reserve(held);
  share.resize(held);
  return answer;
}

std::unique_ptr<Answer> Service::open_answer(const Route& route, const Body& body,
                                             std::string model) {
  const Tokenizer* tokenizer = model_->planner.checkpoint().tokenizer();
  if (route.endpoint != Endpoint::embeddings &&
      !model_->planner.checkpoint().model().root->has_head()) {
    fail(ErrorKind::refused,
         "the checkpoint has no {}.weight, so that this model makes no text; POST to "
         "/v1/embeddings",
         model_->planner.checkpoint().spec().head);
  }
  if (route.endpoint == Endpoint::completions) {
    return completion_answer(parse_completion(body.json, kWhere, context(Api::completions)),
                             head("cmpl-", std::move(model)), tokenizer);
  }
  if (route.endpoint == Endpoint::embeddings) {
    return embeddings_answer(parse_embeddings(body.json, kWhere, context(Api::completions)),
                             head("embd-", std::move(model)));
  }
  Chat chat =
      parse_chat(body.json, body.bytes, kWhere, context(Api::chat), chat_template(), body.reserve);
  chat.form.echo = body.echo;
  chat.asked.form_bytes = chat.form.held_bytes(chat.asked.request.n);
  switch (route.endpoint) {
    case Endpoint::messages:
      return messages_answer(std::move(chat.asked), head("msg_", std::move(model)), tokenizer,
                             std::move(chat.form));
    case Endpoint::responses:
      chat.asked.keeps_logprobs = true;
      return responses_answer(std::move(chat.asked), head("resp_", std::move(model)), tokenizer,
                              std::move(chat.form));
    default:
      return chat_answer(std::move(chat.asked), head("chatcmpl-", std::move(model)), tokenizer,
                         std::move(chat.form));
  }
}

// The text of a conversation, with room for what encoding it takes.
std::string Service::rendered(const Body& body) const {
  std::string text = render_chat(body.json, kWhere, chat_template(), body.reserve);
  body.reserve(encode_bytes(text));
  return text;
}

Reply Service::count_tokens(Endpoint endpoint, const Body& body) {
  const size_t tokens =
      model_->planner.checkpoint().need_tokenizer().encode(rendered(body), false).size();
  Json counted{{"input_tokens", tokens}};
  if (endpoint == Endpoint::input_tokens) counted["object"] = "response.input_tokens";
  return json_reply(counted);
}

Reply Service::tokenize(const Body& body) {
  const Tokenizer& tokenizer = model_->planner.checkpoint().need_tokenizer();
  const bool chat = body.fields.has("messages");
  const std::string text = chat ? rendered(body) : body.fields.string("prompt");
  const std::vector<int32_t> ids =
      tokenizer.encode(text, body.fields.boolean_or("add_special_tokens", !chat));
  const bool texts = body.fields.boolean_or("return_token_strs", false);
  body.reserve((chat ? encode_bytes(text) : 0) + tokens_json_bytes(tokenizer, ids, texts));
  return {.body = tokens_json(tokenizer, ids, texts, model_->max_model_len)};
}

// Answers as vLLM does; lm-evaluation-harness encodes its texts by it.
Reply Service::tokenizer_info() const {
  const Tokenizer& tokenizer = model_->planner.checkpoint().need_tokenizer();
  auto token = [&](std::optional<int32_t> id) {
    return id ? Json(std::string(tokenizer.token(*id))) : Json();
  };
  Json info{{"bos_token", token(tokenizer.bos_id())},
            {"eos_token", token(tokenizer.eos_id())},
            {"chat_template", nullptr},
            {"model_max_length", model_->max_model_len}};
  if (model_->chat_template != nullptr) info["chat_template"] = model_->chat_template->text(false);
  return json_reply(info);
}

Reply Service::detokenize(const Body& body) const {
  const std::optional<std::vector<int32_t>> ids = ids_of(body.fields.raw("tokens"));
  if (!ids) fail(ErrorKind::refused, "{}: tokens must be a list of token ids", kWhere);
  check_token_ids(*ids, model_->planner.checkpoint().spec().vocab_size);
  const Tokenizer& tokenizer = model_->planner.checkpoint().need_tokenizer();
  body.reserve(text_json_bytes(tokenizer, *ids));
  return {.body = text_json(tokenizer, *ids)};
}

}  // namespace sluice
