#include "src/cli/chat/chat.h"

#include <fmt/ranges.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/chat/chat_request.h"
#include "src/cli/chat/chat_history.h"
#include "src/cli/output.h"
#include "src/engine/sampling_defaults.h"

namespace sluice::cli {
namespace {

// Default length of a conversation [tokens]. Keys and values of more might leave little room for
// weights.
constexpr int64_t kUsualContext = 8192;

void check_options(const RunOptions& o) {
  for (const char* option : {"--json", "--report", "TEXT", "--prompt", "--prompt-file",
                             "--token-ids", "--messages", "--logprobs", "--prompt-cache",
                             "--no-generation-prompt", "--json-schema", "--regex", "--grammar"}) {
    if (o.has(option)) fail(ErrorKind::usage, "{}: does not go with --chat", option);
  }
  if (o.chat.tools == "-" || o.chat.chat_template == "-")
    fail(ErrorKind::usage, "with --chat standard input is the conversation; give a file's name");
}

// The option for what generation_config.json calls `key`.
std::string option_of(std::string key) {
  std::ranges::replace(key, '_', '-');
  return "--" + key;
}

SamplingParams chat_sampling(const RunOptions& o, const Planner& planner) {
  SamplingParams sampling = sampling_params(o.generation.sampling);
  const std::optional<Json> config = planner.checkpoint().generation_config();
  if (!config) return sampling;
  std::vector<std::string> taken;
  for (const auto& [key, value] : take_sampling_defaults(
           *config, [&](const std::string& name) { return o.has(option_of(name)); }, sampling))
    taken.push_back(fmt::format("{} {}", option_of(key), value));
  if (!taken.empty()) log::info("generation_config.json: {}", fmt::join(taken, " "));
  return sampling;
}

// Cancels a request that an interrupt, or a fault, has left in the engine.
struct Unfinished {
  Engine& engine;
  int64_t request;
  ~Unfinished() {
    if (!engine.idle()) engine.cancel(request);
  }
};

}  // namespace

Chat::Chat(const RunOptions& o, SignalWatch& signals)
    : options_(o),
      signals_(signals),
      planner_(model_options(o)),
      draft_(open_draft(planner_, o.generation)),
      context_(o.has("--max-model-len") ? planner_.max_model_len()
                                        : std::min(planner_.max_model_len(), kUsualContext)),
      max_tokens_(o.has("--max-tokens") ? std::min(o.max_tokens, context_ - 1) : 0),
      sampling_(chat_sampling(o, planner_)),
      template_(
          open_chat_template(o.chat, planner_.checkpoint().chat_files(), o.model, signals.token())),
      variables_(read_variables(o.chat, signals.token())) {
  if (context_ < 2) fail(ErrorKind::usage, "--max-model-len {}: no conversation fits", context_);
  ids_.emplace(planner_.checkpoint().need_tokenizer());
  Request longest = request({});
  longest.max_tokens = max_tokens_ > 0 ? max_tokens_ : context_ / 2;
  longest.sampling.temperature = 1;  // which /set may ask for
  models_.emplace(o, planner_, std::move(draft_), longest, context_ - longest.max_tokens,
                  signals.token());
  engine_.emplace(models_->model().runner(), planner_.checkpoint().tokenizer(), 1);
  editor_.emplace(signals, o.no_history ? std::filesystem::path() : ChatHistory::usual_file());
  if (editor_->at_terminal() && !o.no_wrap)
    wrap_.emplace(print, [] { return terminal_columns(STDOUT_FILENO); });
}

void Chat::run() {
  log::info("a conversation of up to {} tokens; /help shows the commands, Ctrl-C ends an answer",
            context_);
  // At a terminal, an interrupt right after a line is about its answer; it never ends the
  // conversation.
  std::optional<SignalWatch::Interrupts> taken;
  if (editor_->at_terminal()) taken.emplace(signals_);
  while (!over_) {
    const std::optional<std::string> message = read_message();
    if (!message) break;
    try {
      take(*message);
    } catch (const Error& e) {
      // At a terminal the conversation goes on; a script is told.
      if (!editor_->at_terminal() || signals_.token().stop_requested()) throw;
      log::show(fmt::format("sluice: {}\n", one_line(e.what())));
    }
  }
  models_->model().learn_pass(engine_->stats().pass_seconds);
}

std::optional<std::string> Chat::read_line(const std::string& prompt) {
  for (int interrupts = 0;;) {
    std::optional<LineEditor::Line> line = editor_->next(prompt);
    if (!line) {
      if (editor_->at_terminal()) print("\n");
      return std::nullopt;
    }
    if (!line->interrupted) return std::move(line->text);
    print("\n");
    if (++interrupts == 2) log::show("/exit or Ctrl-D ends the conversation\n");
  }
}

std::optional<std::string> Chat::read_message() {
  constexpr std::string_view kQuotes = R"(""")";
  std::optional<std::string> line = read_line("> ");
  if (!line) return std::nullopt;
  std::string message = *line;
  const bool quoted = message.starts_with(kQuotes);
  if (quoted) message.erase(0, kQuotes.size());
  auto goes_on = [&] { return quoted ? !message.ends_with(kQuotes) : message.ends_with('\\'); };
  while (goes_on()) {
    if (!quoted) message.pop_back();
    line = read_line("... ");
    if (!line) break;
    message += "\n" + *line;
  }
  editor_->remember(quoted ? std::string(kQuotes) + message : message);
  if (quoted && message.ends_with(kQuotes)) message.resize(message.size() - kQuotes.size());
  return message;
}

void Chat::take(const std::string& message) {
  if (trim(message).empty()) return;
  if (message.front() == '/') {
    over_ = !command(message);
  } else {
    answer(message);
  }
}

std::string Chat::render() {
  const std::string messages = conversation_.json().dump();
  jinja::Context context({}, [&](uint64_t bytes) {
    planner_.machine().hold_input("the conversation", bytes + 4 * messages.size());
  });
  set_chat(context, jinja::read_json(context.meter(), messages, "the conversation"), true,
           "the conversation");
  set_variables(context, variables_);
  complete_messages(context, options_.chat, template_, "the conversation");
  return template_.render(context);
}

Request Chat::request(std::vector<int32_t> prompt) {
  Request request;
  const int64_t room = context_ - std::ssize(prompt);
  request.max_tokens = max_tokens_ > 0 ? std::min(max_tokens_, room) : room;
  request.prompt = std::move(prompt);
  request.sampling = sampling_;
  request.sampling.seed += static_cast<uint64_t>(turns_);
  request.stop = options_.stop;
  if (!options_.ignore_eos) request.eos_ids = planner_.checkpoint().model().files.eos_ids;
  return request;
}

void Chat::answer(const std::string& message) {
  conversation_.add({.role = "user", .content = message, .reasoning = {}});
  try {
    if (!respond()) conversation_.drop_last();
  } catch (...) {
    conversation_.drop_last();
    throw;
  }
}

bool Chat::respond() {
  std::string text;
  std::vector<int32_t> prompt = make_room(text);
  const int64_t tokens = std::ssize(prompt);
  Answer said = generate(request(prompt), text);
  ++turns_;
  ids_->learn(std::move(text), std::move(prompt), said.ids);
  const bool spoke = !said.message.content.empty() || !said.message.reasoning.empty();
  if (spoke) conversation_.add(std::move(said.message));
  tell_end(said.finish_reason, tokens, std::ssize(said.ids));
  return spoke;
}

std::vector<int32_t> Chat::make_room(std::string& text) {
  auto tokenize = [&] {
    text = render();
    std::vector<int32_t> prompt = ids_->of(text);
    planner_.machine().hold_input({}, 0);
    malloc_trim(0);  // what rendering took and gave back
    return prompt;
  };
  std::vector<int32_t> prompt = tokenize();
  // To drop half of the conversation computes the rest once; to drop a turn each time, every turn.
  const int64_t wanted = max_tokens_ > 0 ? max_tokens_ : context_ / 4;
  size_t dropped = 0;
  if (options_.context_shift && std::ssize(prompt) + wanted > context_) {
    while (std::ssize(prompt) > context_ / 2 && conversation_.drop_oldest_turn(true)) {
      ++dropped;
      prompt = tokenize();
    }
  }
  if (dropped > 0) log::info("dropped the {} oldest turns to make room (--context-shift)", dropped);
  if (std::ssize(prompt) < context_) return prompt;
  if (conversation_.turns() < 2)
    fail(ErrorKind::usage,
         "the message is too long: it has {} tokens with the system message, and the conversation "
         "may have {} with the answer; shorten it, or give more --max-model-len",
         prompt.size(), context_);
  fail(ErrorKind::usage,
       "the conversation is full: it has {} tokens, and may have {} with the answer; type /drop to "
       "remove its oldest turn or /reset to begin anew, or start with --context-shift or more "
       "--max-model-len",
       prompt.size(), context_);
}

void Chat::tell_end(const std::string& finish_reason, int64_t tokens, int64_t answer) const {
  if (finish_reason != "length") return;
  if (tokens + answer >= context_) {
    log::info("the answer ends here: the conversation is full ({} tokens); {}", context_,
              options_.context_shift
                  ? "its oldest turns are dropped for the next message"
                  : "type /drop to remove its oldest turn, or start with --context-shift or more "
                    "--max-model-len");
  } else {
    log::info("the answer ends here: it has {} tokens (--max-tokens, or /set max_tokens)", answer);
  }
}

Chat::Answer Chat::generate(Request request, const std::string& prompt_text) {
  models_->prepare(request);
  check_request(request, planner_.checkpoint().spec().vocab_size, true);
  turn_ = {.prompt_tokens = std::ssize(request.prompt)};
  const int64_t reused = engine_->stats().prefix_tokens;
  Answer answer;
  ReasoningSplitter splitter(template_.text(options_.chat.tools.has_value()), prompt_text);
  const SignalWatch::Interrupts interrupts(signals_);
  const OutputId id{engine_->add(std::move(request)), 0};
  const Unfinished unfinished{*engine_, id.request};
  auto take = [&](const std::string& text, bool last) {
    for (const auto& part : splitter.add(text, last)) show(part, answer.message);
  };
  while (!engine_->idle() && !interrupts.came()) {
    for (const Output& out : engine_->step(signals_.token())) {
      answer.ids.insert(answer.ids.end(), out.ids.begin(), out.ids.end());
      take(out.text, false);
    }
    follow_limits(models_->model(), signals_.shrink(), followed_);
  }
  take({}, true);
  dim(false);
  end_text();
  turn_.reused_tokens = engine_->stats().prefix_tokens - reused;
  turn_.generated_tokens = std::ssize(answer.ids);
  if (!engine_->idle()) return answer;
  const RequestResult result = engine_->take(id);
  if (!result.error.empty()) fail(ErrorKind::runtime, "{}", result.error);
  turn_.prefill_seconds = result.prefill_seconds;
  turn_.decode_seconds = result.decode_seconds;
  answer.finish_reason = result.finish_reason;
  return answer;
}

void Chat::show(const ReasoningSplitter::Part& part, ChatMessage& message) {
  const bool first_word = message.content.empty() && !message.reasoning.empty();
  (part.reasoning ? message.reasoning : message.content) += part.text;
  if (part.reasoning && options_.reasoning == "hide") return;
  const bool gap = !part.reasoning && first_word && options_.reasoning == "show";
  if (wrap_) {
    if (gap) wrap_->add("\n\n");
    dim(part.reasoning);
    wrap_->add(speech_for_terminal(part.text));
  } else {
    if (gap) print("\n\n");
    dim(part.reasoning);
    print_speech(part.text);
  }
}

// Thoughts are dimmed at a terminal.
void Chat::dim(bool thoughts) {
  if (!stdout_is_terminal() || thoughts == dimmed_) return;
  if (wrap_) wrap_->flush();
  print(thoughts ? "\x1b[2m" : "\x1b[22m");
  dimmed_ = thoughts;
}

void Chat::end_text() {
  if (wrap_) wrap_->finish();
  print("\n");
}

void chat(const RunOptions& options, SignalWatch& signals) {
  check_options(options);
  Chat(options, signals).run();
}

}  // namespace sluice::cli
