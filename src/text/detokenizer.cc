#include "src/text/detokenizer.h"

#include <utility>

namespace sluice {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens, Gives gives)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      early_(gives == Gives::early),
      looks_ahead_(tokenizer.decoder().looks_ahead()) {
  for (const StripEnds& strip : tokenizer.decoder().text_start()) strips_.push_back(strip.start);
}

std::string Detokenizer::add(int32_t id) {
  if (!tokenizer_.has(id) || (skip_special_tokens_ && tokenizer_.is_special(id))) return {};
  const std::string_view token = tokenizer_.token(id);
  if (looks_ahead_) {
    put(std::exchange(if_not_last_, {}));
    if_last_.clear();
  }
  if (std::optional<char> byte = tokenizer_.decoder().byte(token)) {
    add_byte(*byte);
  } else {
    end_run();
    take(token);
  }
  first_ = false;
  if (run_.bytes > 0 || utf8_.incomplete() || held_.ends_with(kReplacementCharacter)) return {};
  return std::exchange(held_, {});
}

std::string Detokenizer::finish() {
  put(std::exchange(if_last_, {}));
  end_run();
  utf8_.finish(held_);
  return std::exchange(held_, {});
}

void Detokenizer::take(std::string_view token) {
  const Decoder& decoder = tokenizer_.decoder();
  const bool repeats = !first_ && token == previous_;
  previous_ = token;
  std::string text = decoder.bytes(token, {.first = first_, .last = true, .repeats = repeats});
  if (!looks_ahead_) return put(std::move(text));
  std::string longer = decoder.bytes(token, {.first = first_, .last = false, .repeats = repeats});
  if (early_ && longer.starts_with(text)) {
    longer.erase(0, text.size());
    put(std::exchange(text, {}));
  }
  if_last_ = std::move(text);
  if_not_last_ = std::move(longer);
}

void Detokenizer::add_byte(char byte) {
  if (run_.bytes == 0 && !run_.utf8.replaced()) run_.first = first_;
  ++run_.bytes;
  std::string text;
  run_.utf8.append(std::string_view(&byte, 1), text);
  if (run_.utf8.replaced()) return;
  run_.text += text;
  if (!early_ || run_.utf8.incomplete() || run_.text.ends_with(kReplacementCharacter)) return;
  put(tokenizer_.decoder().run(std::exchange(run_.text, {}), {.first = run_.first, .last = false}));
  run_.bytes = 0;
  run_.first = false;
}

void Detokenizer::end_run() {
  if (run_.bytes == 0) return;
  if (run_.utf8.replaced() || run_.utf8.incomplete()) {
    run_.text.clear();
    for (int64_t i = 0; i < run_.bytes; ++i) run_.text += kReplacementCharacter;
  }
  put(tokenizer_.decoder().run(std::move(run_.text), {.first = run_.first, .last = false}));
  run_ = {};
}

// The decoder's steps on the whole text come behind those on tokens.
void Detokenizer::put(std::string text) {
  if (text.empty()) return;
  for (size_t i = 0; i < strips_.size(); ++i) {
    const std::string& strip = tokenizer_.decoder().text_start()[i].text;
    while (strips_[i] > 0 && text.starts_with(strip)) {
      text.erase(0, strip.size());
      --strips_[i];
    }
    if (!text.empty()) strips_[i] = 0;
  }
  utf8_.append(text, held_);
}

}  // namespace sluice
