// sluice run: one prompt, its continuation on stdout as it comes.
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/json_writer.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/input.h"
#include "src/cli/ranks.h"
#include "src/cli/run_options.h"
#include "src/cli/run_report.h"
#include "src/cli/verbs.h"

namespace sluice::cli {
namespace {

// Reads no more of the text than a sequence may have.
std::vector<int32_t> text_ids(TextIds& text, Planner& planner) {
  if (text.read(static_cast<size_t>(planner.max_model_len()))) {
    fail(ErrorKind::usage,
         "the prompt has {0} tokens or more, but prompt and answer together may have {0}; shorten "
         "it or raise --max-model-len",
         planner.max_model_len());
  }
  planner.machine().hold_input({}, 0);
  return {text.ids().begin(), text.ids().end()};
}

std::vector<int32_t> prompt_file_ids(const RunOptions& o, Planner& planner,
                                     const std::stop_token& stop) {
  TextIds text(planner, open_input(*o.prompt_file, "--prompt-file", stop));
  return text_ids(text, planner);
}

// Returns the ids of piped input, which is the prompt where no option gives one.
std::vector<int32_t> piped_ids(Planner& planner, const std::stop_token& stop) {
  constexpr const char* kHow =
      "give a prompt: sluice run MODEL \"TEXT\", or one of --prompt-file, --token-ids and "
      "--messages; sluice chat MODEL is for conversations";
  if (isatty(STDIN_FILENO) == 1) fail(ErrorKind::usage, kHow);
  TextIds text(planner, open_input("-", "the prompt on", stop), false);
  std::vector<int32_t> ids = text_ids(text, planner);
  if (text.empty()) fail(ErrorKind::usage, kHow);
  return ids;
}

// The template prints the special tokens itself.
std::vector<int32_t> message_ids(const RunOptions& o, Planner& planner,
                                 const std::stop_token& stop) {
  ChatTemplate chat_template =
      open_chat_template(o.chat, planner.checkpoint().chat_files(), o.model, stop);
  const std::string text = render_messages(o.chat, chat_template, stop, [&](uint64_t bytes) {
    planner.machine().hold_input("the chat template", bytes);
  });
  std::vector<int32_t> ids = planner.checkpoint().need_tokenizer().encode(text, false);
  planner.machine().hold_input({}, 0);
  return ids;
}

std::vector<int32_t> prompt_ids(const RunOptions& o, Planner& planner,
                                const std::stop_token& stop) {
  int given = int(o.text.has_value()) + int(o.prompt.has_value()) + int(o.prompt_file.has_value()) +
              int(o.token_ids.has_value()) + int(o.chat.messages.has_value());
  if (given > 1)
    fail(ErrorKind::usage,
         "give the prompt once: as a text behind MODEL, or as one of --prompt, --prompt-file, "
         "--token-ids and --messages");
  if (given == 0) return piped_ids(planner, stop);
  if (o.chat.messages) return message_ids(o, planner, stop);
  if (o.token_ids) return parse_token_ids(*o.token_ids, "--token-ids");
  if (o.prompt_file) return prompt_file_ids(o, planner, stop);
  return planner.checkpoint().need_tokenizer().encode(o.text ? *o.text : *o.prompt, true);
}

Request make_request(const RunOptions& o, Planner& planner, const std::stop_token& stop) {
  Request request;
  request.prompt = prompt_ids(o, planner, stop);
  int64_t prompt = std::ssize(request.prompt);
  if (prompt >= planner.max_model_len()) {
    fail(ErrorKind::usage,
         "the prompt has {} tokens, but --max-model-len allows {} with the answer; shorten the "
         "prompt or raise --max-model-len",
         prompt, planner.max_model_len());
  }
  request.max_tokens = std::min(o.max_tokens, planner.max_model_len() - prompt);
  request.sampling = sampling_params(o.generation.sampling);
  request.sampling.grammar = find_grammar(o.grammar, planner.checkpoint(), stop);
  request.stop = o.stop;
  if (!o.ignore_eos) request.eos_ids = planner.checkpoint().model().files.eos_ids;
  check_request(request, planner.checkpoint().spec().vocab_size,
                planner.checkpoint().tokenizer() != nullptr);
  return request;
}

Json timings_json(const LoadedModel& model, size_t prompt, int64_t prefix, const RequestResult& r) {
  auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0.0; };
  auto computed = static_cast<double>(std::max<int64_t>(static_cast<int64_t>(prompt) - prefix, 0));
  size_t later = r.ids.empty() ? 0 : r.ids.size() - 1;
  return {{"load_seconds", model.report().seconds},
          {"prompt_tokens", prompt},
          {"prefix_tokens", prefix},
          {"prefill_seconds", r.prefill_seconds},
          {"prefill_tokens_per_second", rate(computed, r.prefill_seconds)},
          {"generated_tokens", r.ids.size()},
          {"decode_steps", r.steps},
          {"guessed_tokens", r.drafted},
          {"accepted_tokens", r.accepted},
          {"decode_seconds", r.decode_seconds},
          {"decode_tokens_per_second", rate(static_cast<double>(later), r.decode_seconds)}};
}

void write_logprobs(JsonWriter& json, const std::vector<TokenLogprobs>& tokens) {
  auto begin_logprob = [&](const Logprob& l) {
    json.begin_object();
    json.member("logprob", l.logprob);
    json.member("token_id", l.token_id);
  };
  json.array(tokens, [&](const TokenLogprobs& token) {
    begin_logprob(token.token);
    json.key("top");
    json.array(token.top, [&](const Logprob& l) {
      begin_logprob(l);
      json.end_object();
    });
    json.end_object();
  });
}

// Prints JSON as it is made: with the logprobs of a vocabulary it is many times as large as these.
void print_result(const RequestResult& result, RunReport& report, bool logprobs) {
  const MemoryReport& memory = report.memory();
  print_json([&](JsonWriter& json) {
    json.begin_object();
    json.member("finish_reason", result.finish_reason);
    json.member("logits_hash", fmt::format("{:016x}", result.logits_hash));
    if (logprobs) {
      json.key("logprobs");
      write_logprobs(json, result.logprobs);
    }
    json.key("memory");
    write_json(json, memory);
    json.member("scheduler", report.scheduler());
    json.key("text");
    json.text({result.text});
    json.member("timings", report.timings());
    json.key("token_ids");
    json.array(result.ids);
    json.end_object();
  });
}

void check_prompt_cache(const RunOptions& o) {
  if (o.generation.prompt_cache.empty()) return;
  PromptCache::check(o.generation.prompt_cache);
  check_writable("--prompt-cache", o.generation.prompt_cache);
}

void check_tokens(const RunOptions& o) {
  const SamplingParams& p = o.generation.sampling.params;
  if (p.logprobs && !o.json)
    fail(ErrorKind::usage, "--logprobs are part of the JSON: give --json, too");
}

// The file of --prompt-cache.
class StoredPrompt {
 public:
  StoredPrompt(LoadedModel& model, const std::string& path, std::vector<int32_t> prompt)
      : runner_(model.runner()),
        prompt_(std::move(prompt)),
        cache_(model.prompt_cache(path, std::ssize(prompt_))) {
    int64_t tokens = runner_.restore(cache_, prompt_);
    if (tokens > 0)
      log::info("{}: keys and values of the first {} of {} prompt tokens", path, tokens,
                prompt_.size());
  }
  // Once, when the prompt has been computed.
  void save() {
    if (!std::exchange(saved_, true)) runner_.save(cache_, prompt_);
  }

 private:
  Runner& runner_;
  std::vector<int32_t> prompt_;
  PromptCache cache_;
  bool saved_ = false;
};

void check_chat_options(const RunOptions& o) {
  if (o.chat.messages) return;
  for (const char* option : {"--chat-template", "--tools", "--tool-format", "--template-variables",
                             "--no-generation-prompt"}) {
    if (o.has(option)) fail(ErrorKind::usage, "{}: needs --messages or --chat", option);
  }
}

void run(const RunOptions& o, SignalWatch& signals) {
  apply_log_level(o);
  if (o.reasoning != "show" && o.reasoning != "hide")
    fail(ErrorKind::usage, "--reasoning {}: must be show or hide", o.reasoning);
  check_speculation(o.generation);
  if (o.interactive) return chat(o, signals);
  check_chat_options(o);
  const std::stop_token stop = signals.token();
  check_report_path(o);
  check_prompt_cache(o);
  check_tokens(o);
  ModelOptions options = model_options(o);
  options.prompt_cache = !o.generation.prompt_cache.empty();
  Planner planner(std::move(options));
  std::unique_ptr<Planner> draft = open_draft(planner, o.generation);
  Request request = make_request(o, planner, stop);
  int64_t prompt = std::ssize(request.prompt);
  RunModels models(o, planner, std::move(draft), request, prompt, stop);
  LoadedModel& model = models.model();
  models.prepare(request);
  Lease logprobs = planner.machine().ledger().lease(Place::host, Use::activations, "logprobs",
                                                    result_bytes(request));

  std::optional<StoredPrompt> stored;
  if (!o.generation.prompt_cache.empty())
    stored.emplace(model, o.generation.prompt_cache, request.prompt);
  Engine engine(model.runner(), planner.checkpoint().tokenizer(), 1);
  OutputId id{engine.add(std::move(request)), 0};
  int followed = 0;
  while (!engine.idle()) {
    for (const Output& out : engine.step(stop)) {
      if (!o.json) print_speech(out.text);
    }
    if (stored && engine.stats().generated_tokens > 0) stored->save();
    follow_limits(model, signals.shrink(), followed);
  }
  model.learn_pass(engine.stats().pass_seconds);
  RequestResult result = engine.take(id);
  if (!result.error.empty()) fail(ErrorKind::runtime, "{}", result.error);
  if (!o.json && planner.checkpoint().tokenizer() == nullptr)
    print(fmt::format("{}\n", fmt::join(result.ids, ",")));
  if (!o.json && planner.checkpoint().tokenizer() != nullptr) print("\n");

  RunReport report(
      "run", o, model,
      timings_json(model, static_cast<size_t>(prompt), engine.stats().prefix_tokens, result));
  report.save(stop);
  if (o.json) print_result(result, report, o.generation.sampling.params.logprobs.has_value());
  log::info("\n{}\nlast logits {:016x}", report.summary(), result.logits_hash);
}

}  // namespace

namespace {

// To render a conversation of so many tokens again at each turn.
uint64_t conversation_bytes(int64_t tokens) {
  constexpr uint64_t kLeast = 256 * KiB, kToken = 64;
  return kLeast + static_cast<uint64_t>(tokens) * kToken;
}

}  // namespace

RunModels::RunModels(const RunOptions& o, Planner& planner, std::unique_ptr<Planner> draft,
                     const Request& longest, int64_t prompt_tokens, const std::stop_token& stop)
    : draft_planner_(std::move(draft)) {
  const int64_t tokens = prompt_tokens + longest.max_tokens;
  RunShapes shapes = run_shapes(planner, o.generation, longest, prompt_tokens, 1,
                                o.interactive ? conversation_bytes(tokens) : 0);
  std::shared_ptr<const Placed> draft_placed;
  if (draft_planner_) {
    const RunShape own = DraftModel::shape(*draft_planner_, tokens, prompt_tokens);
    draft_placed = draft_planner_->place_beside(planner, own, shapes.shape);
  }
  const std::shared_ptr<const Placed> placed = planner.place(shapes.shape);
  lookup_ = shapes.lookup;
  if (draft_planner_) {
    load_with_progress(draft_model_, *draft_planner_, draft_placed, o, stop);
    draft_.emplace(draft_model_->runner(), draft_planner_->max_model_len());
  }
  load_with_progress(model_, planner, placed, o, stop);
}

void RunModels::prepare(Request& request) {
  request.lookup = lookup_;
  request.draft = draft_ ? &*draft_ : nullptr;
}

namespace {

// Adds what only a conversation has.
void add_conversation_options(CLI::App& verb, RunOptions& o) {
  begin_group(verb, kConversationGroup);
  verb.add_option("--reasoning", o.reasoning,
                  "Show or hide what the model thinks before it answers");
  verb.add_flag("--context-shift", o.context_shift,
                "Drop the oldest turns where the conversation has no room for more");
  verb.add_flag("--no-history", o.no_history,
                "Keep no history of what is typed for the next conversation");
  verb.add_flag("--no-wrap", o.no_wrap, "Break no lines between words at the terminal's edge");
}

// Adds the options that run and chat share; each has its own before them.
void add_run_options(CLI::App& verb, const std::shared_ptr<RunOptions>& o, SignalWatch& signals) {
  begin_group(verb, kGenerationGroup);
  verb.add_option("-n,--max-tokens", o->max_tokens, "Generate at most this many tokens")
      ->check(CLI::Range(int64_t{1}, kMaxPositions));
  add_generation_options(verb, o->generation);
  add_grammar_options(verb, o->grammar);
  verb.add_option("--stop", o->stop, "End before this text; may be given several times")
      ->allow_extra_args(false);
  verb.add_flag("--ignore-eos", o->ignore_eos, "Go on after an end-of-sequence token");
  verb.callback([o, &verb, &signals] {
    for (const CLI::Option* option : verb.get_options())
      if (option->count() > 0) o->given.insert(option->get_name());
    on_ranks(*o, signals.token(), true, [&] { run(*o, signals); });
  });
}

}  // namespace

void define_chat(CLI::App& app, SignalWatch& signals) {
  auto o = std::make_shared<RunOptions>();
  o->interactive = true;
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model, as run --chat does");
  verb->footer(
      "Examples:\n"
      "  sluice chat MODEL\n"
      "  sluice chat ORG/NAME --memory 6GiB --quantization fp8");
  add_model_options(*verb, *o, signals.token());
  add_pull_option(*verb, *o, signals.token(), &o->generation.draft_model);
  add_template_options(*verb, o->chat);
  add_conversation_options(*verb, *o);
  add_tool_format(*verb, o->chat.tool_format.emplace(ToolFormat::automatic));
  add_run_options(*verb, o, signals);
}

void define_run(CLI::App& app, SignalWatch& signals) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* verb = app.add_subcommand("run", "Generate text from a prompt");
  verb->footer(
      "Examples:\n"
      "  sluice run MODEL \"Once upon a time\" -n 100\n"
      "  echo \"Once upon a time\" | sluice run MODEL\n"
      "  sluice run MODEL \"Once\" --quantization fp8 --memory 4GiB --report report.json\n"
      "  sluice run MODEL --messages chat.json --temperature 0.7\n"
      "  sluice run MODEL --chat\n"
      "  sluice run MODEL --token-ids 1,15043 -n 16 --json\n"
      "  sluice run BIG -p \"Once upon a time\" --memory 6GiB --draft-model SMALL");
  add_model_options(*verb, *o, signals.token());
  verb->add_option("TEXT", o->text,
                   "Continue this text; without one, and without an option that gives one, "
                   "continue what is piped in");
  add_pull_option(*verb, *o, signals.token(), &o->generation.draft_model);
  begin_group(*verb, kGenerationGroup);
  verb->add_option("-p,--prompt", o->prompt, "Continue this text");
  verb->add_option("--prompt-file", o->prompt_file,
                   "Continue the text in this file; - for standard input")
      ->type_name("FILE");
  verb->add_option("--token-ids", o->token_ids, "Continue these token ids: 1,2,3");
  add_chat_options(*verb, o->chat);
  add_tool_format(*verb, o->chat.tool_format.emplace(ToolFormat::automatic));
  verb->add_flag("--chat", o->interactive, "Talk with the model; /help says more");
  add_conversation_options(*verb, *o);
  add_run_options(*verb, o, signals);
}

}  // namespace sluice::cli
