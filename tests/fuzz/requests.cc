// The body of any request that a server reads, and an answer to it. The parts: the number of the
// path, the body, the text of the answer.
#include <array>
#include <atomic>

#include "src/serve/request_target.h"
#include "src/serve/service.h"
#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

constexpr std::array<std::string_view, 9> kPaths{"/v1/completions",
                                                 "/v1/chat/completions",
                                                 "/v1/messages",
                                                 "/v1/messages/count_tokens",
                                                 "/v1/responses",
                                                 "/tokenize",
                                                 "/detokenize",
                                                 "/v1/embeddings",
                                                 "/v1/responses/input_tokens"};
// Shows all that a request may say, with thoughts and calls as Qwen's does.
constexpr const char* kTemplate =
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role "
    "}}: "
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor "
    "%}\n"
    "{% endfor %}{{ documents }}{{ enable_thinking }}{% if add_generation_prompt %}model: {% endif "
    "%}";

ModelOptions options() {
  ModelOptions options;
  options.model = test::source_dir() / "tools/demo-model";
  options.threads = 1;
  return options;
}

// A server but for its network. Its engine is never asked.
class Target {
 public:
  Target() {
    loaded_.emplace(planner_, planner_.place(planner_.run_shape(64, 16, 1)));
    loop_ = std::make_unique<EngineLoop>(*loaded_, 1, shrink_);
    service_.set_ready({.planner = planner_,
                        .loop = *loop_,
                        .chat_template = &template_,
                        .no_chat = {},
                        .defaults = {.temperature = 1},
                        .max_model_len = planner_.max_model_len()});
  }

  void run(const Route& route, std::string_view body, std::string_view text) {
    {
      RequestMemory::Share share = *memory_.take(body.size());
      auto work = service_.open(route, {}, std::string(body), share);
      if (auto* reply = std::get_if<Reply>(&work)) {
        check(Json::accept(reply->body), "a reply is JSON");
      } else {
        answer(*std::get<std::unique_ptr<Answer>>(work), text);
      }
    }
    check(memory_.used() == 0, "memory of a request is not given back");
  }
  Json refuse(const Refusal& why, const Route& route) {
    return Json::parse(reply_of(why, route.dialect, {}).body);
  }

 private:
  static TokenLogprobs logprobs(std::string_view text, int64_t i) {
    const auto byte =
        static_cast<uint8_t>(text.empty() ? 0 : text[static_cast<size_t>(i) % text.size()]);
    const Logprob token{byte * 17, -static_cast<double>(i)};  // some ids have no token
    return {token, {token, {byte, -1.5}}};
  }

  static StreamPart part(const Request& request, std::string_view text, int64_t tokens) {
    StreamPart part;
    part.text = to_valid_utf8(text);
    for (int64_t i = 0; i < tokens; ++i) {
      const TokenLogprobs t = logprobs(text, i);
      part.ids.push_back(t.token.token_id);
      if (request.sampling.logprobs) part.logprobs.push_back(t);
    }
    return part;
  }

  // In two parts, and all of it in the result.
  static void answer(Answer& answer, std::string_view text) {
    constexpr size_t kMostChoices = 64, kHidden = 256;  // of the bundled model
    const Completion& asked = answer.asked();
    const Request& request = asked.request;
    if (asked.prompts.size() * static_cast<size_t>(request.n) > kMostChoices) return;
    std::string out;
    if (answer.streams()) answer.begin(out);
    for (size_t prompt = 0; prompt < asked.prompts.size(); ++prompt) {
      for (int64_t i = 0; i < request.n; ++i) {
        const StreamPart all = part(request, text, 4);
        if (answer.streams())
          answer.take(prompt, i, part(request, text.substr(0, text.size() / 2), 2), out);
        StreamPart last = part(request, text.substr(text.size() / 2), 2);
        last.result.emplace();
        last.result->ids = all.ids;
        last.result->text = all.text;
        last.result->logprobs = all.logprobs;
        last.result->embedding.assign(kHidden, 0.25F);
        last.result->finish_reason = i % 2 == 0 ? "stop" : "length";
        for (int64_t t = 1;
             request.sampling.prompt_logprobs && t < std::ssize(asked.prompts[prompt]); ++t)
          last.result->prompt_logprobs.push_back(logprobs(text, t));
        answer.take(prompt, i, std::move(last), out);
      }
    }
    check(answer.done(), "an answer has an end");
    const bool streams = answer.streams();
    answer.finish(out);
    if (!streams) return check(Json::accept(out), "an answer is JSON");
    answer.fail(Refusal(500, to_valid_utf8(text)), out);
    check_events(out);
  }

  static void check_events(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find("\n\n");
      check(end != std::string_view::npos, "an event has an end");
      std::string_view event = text.substr(0, end);
      text.remove_prefix(end + 2);
      if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
      check(event.starts_with("data: ") && event.find('\n') == std::string_view::npos,
            "an event has one line of data");
      event.remove_prefix(std::string_view("data: ").size());
      check(event == "[DONE]" || Json::accept(event), "an event's data is JSON");
    }
  }

  Planner planner_{options()};
  std::optional<LoadedModel> loaded_;
  std::atomic<int> shrink_{0};
  std::unique_ptr<EngineLoop> loop_;
  ChatTemplate template_{
      {.templates = {}, .special = {{"bos_token", "<s>"}}}, "template", kTemplate};
  RequestMemory memory_{64 * MiB};
  Service service_{{"demo"}, memory_, {}};
};

}  // namespace

FUZZ_TARGET(requests) {
  static Target target;
  std::string_view input = test::text_of(data, size);
  path_of(input);
  const std::string_view number = test::take_part(input);
  const std::string_view body = test::take_part(input);
  const size_t path = number.empty() ? 0 : static_cast<uint8_t>(number[0] - '0') % kPaths.size();
  const Route& route = *find_route(kPaths[path]);
  return test::taken_or_refused([&] {
    try {
      target.run(route, body, input);
    } catch (const Refusal& refusal) {
      target.refuse(refusal, route);
    } catch (const Error& error) {
      target.refuse(refusal_of(error), route);
      throw;
    }
  });
}
