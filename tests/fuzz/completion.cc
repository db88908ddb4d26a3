// The body of a request for a completion, and an answer to it whose tokens are of the input's
// bytes.
#include "src/serve/apis/completion.h"

#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

// Returns an answer of so many tokens; some ids have no token.
RequestResult answer(std::string_view text, int64_t tokens) {
  RequestResult result;
  auto token = [&](int64_t i) {
    auto byte = static_cast<uint8_t>(text[static_cast<size_t>(i) % text.size()]);
    return Logprob{byte * 17, -static_cast<double>(i)};
  };
  for (int64_t i = 0; i < tokens; ++i) {
    TokenLogprobs& t = result.logprobs.emplace_back(TokenLogprobs{token(i), {}});
    for (int64_t j = 0; j < 4; ++j) t.top.push_back(token(i + j));
    result.ids.push_back(t.token.token_id);
  }
  return result;
}

}  // namespace

FUZZ_TARGET(completion) {
  std::string_view text = test::text_of(data, size);
  static Planner planner([] {
    ModelOptions options;
    options.model = test::source_dir() / "tools/demo-model";
    options.threads = 1;
    return options;
  }());
  return test::taken_or_refused([&] {
    Completion completion = parse_completion(
        parse_ordered(text, "input"), "input",
        {.checkpoint = planner.checkpoint(), .max_model_len = planner.max_model_len()});
    std::vector<std::vector<RequestResult>> results;
    const Request& r = completion.request;
    for (const std::vector<int32_t>& ids : completion.prompts) {
      auto& of_prompt = results.emplace_back(static_cast<size_t>(r.n));
      for (RequestResult& result : of_prompt)
        result = answer(text, std::min<int64_t>(r.max_tokens, 5));
      auto prompt = std::ssize(ids);
      of_prompt.front().prompt_logprobs = answer(text, prompt - 1).logprobs;
    }
    std::string written;
    append_json(written, [&](JsonWriter& writer) {
      write_completion(writer, {}, completion, std::move(results),
                       planner.checkpoint().tokenizer());
    });
    const Json response = Json::parse(written);
    for (const Json& choice : response.at("choices")) {
      const Json& logprobs = choice.at("logprobs");
      if (logprobs.is_null()) continue;
      check(logprobs.at("tokens").size() == logprobs.at("text_offset").size(), "a list is shorter");
    }
  });
}
