// Any template and any conversation: a text of bounded size and valid UTF-8, or one sentence. A
// part of the input for each of them.
#include "src/chat/chat_template.h"

#include "src/chat/chat_request.h"
#include "src/chat/conversation.h"
#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

// Small, so that an input takes little time.
constexpr jinja::Limits kRenderLimits{
    .steps = 50'000, .depth = 300, .bytes = 8 * MiB, .output_bytes = 1 * MiB};

std::string render(ChatTemplate& chat_template, std::string_view request) {
  jinja::Context context(kRenderLimits);
  context.now = 1'700'000'000;
  set_chat(context, jinja::read_json(context.meter(), request, "request"), true, "request");
  complete_chat(context);
  return chat_template.render(context);
}

}  // namespace

FUZZ_TARGET(chat_template) {
  std::string_view input = test::text_of(data, size);
  const std::string_view source = test::take_part(input);
  test::taken_or_refused([&] { Conversation::from_json(input, "conversation").json(); });
  return test::taken_or_refused([&] {
    ChatTemplate chat_template({.templates = {}, .special = {{"bos_token", "<s>"}}}, "template",
                               std::string(source));
    const std::string text = render(chat_template, input);
    check(text.size() <= kRenderLimits.output_bytes, "a text is bounded");
    check(to_valid_utf8(text) == text, "a text is UTF-8");
    check(render(chat_template, input) == text, "rendering changes nothing");
  });
}
