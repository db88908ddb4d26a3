#include "src/chat/fit_messages.h"

#include <string>
#include <utility>
#include <vector>

#include "src/chat/message_values.h"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Meter;
using jinja::Value;

constexpr std::string_view kApart = "\n\n";

bool instructs_all(const Value& message) { return role_of(message) == "system"; }

Value with_text(Meter& meter, const Value& message, std::string text) {
  return with_member(meter, message, "content", make_text(meter, std::move(text)));
}

Value list_of_one_text(Meter& meter, std::string text) {
  std::vector<Dict::Entry> part;
  part.emplace_back(make_text(meter, "type"), make_text(meter, "text"));
  part.emplace_back(make_text(meter, "text"), make_text(meter, std::move(text)));
  return make_list(meter, {make_dict(meter, std::move(part))});
}

const ContentForms& forms_of(const TemplateTraits& traits, const std::string& role) {
  if (role == "system" || role == "developer") return traits.system;
  if (role == "assistant") return traits.assistant;
  if (role == "tool" || role == "function") return traits.tool;
  return traits.user;
}

class SystemPlaces {
 public:
  SystemPlaces(Meter& meter, const TemplateTraits& traits) : meter_(meter), traits_(traits) {}

  void add(const Value& message) {
    const bool first = made_.empty() || (made_.size() == 1 && instructs_all(made_.front()));
    if (!instructs_all(message)) {
      const bool user = role_of(message) == "user" && !held_.empty();
      made_.push_back(user ? with_text(meter_, message, take() + content_text(message)) : message);
    } else if (traits_.first_system && made_.empty()) {
      made_.push_back(message);
    } else if (traits_.first_system && first && !traits_.later_system) {
      made_.front() =
          with_text(meter_, message,
                    content_text(made_.front()).append(kApart).append(content_text(message)));
    } else if (traits_.later_system && traits_.first_system) {
      made_.push_back(message);
    } else {
      held_.append(content_text(message)).append(kApart);
    }
  }

  jinja::Values take_all() {
    if (held_.empty()) return std::move(made_);
    std::string rest = take();
    rest.resize(rest.size() - kApart.size());
    if (!made_.empty() && role_of(made_.back()) == "user") {
      made_.back() =
          with_text(meter_, made_.back(), content_text(made_.back()).append(kApart).append(rest));
    } else {
      made_.push_back(make_message(meter_, "user", std::move(rest)));
    }
    return std::move(made_);
  }

 private:
  std::string take() { return std::exchange(held_, {}); }

  Meter& meter_;
  const TemplateTraits& traits_;
  jinja::Values made_;
  std::string held_;  // of the system, for the next message of the user
};

// The results of calls, which follow each other from `first` on.
class Results {
 public:
  Results(const jinja::Values& messages, size_t first) : messages_(messages), first_(first) {
    while (end() < messages.size() && role_of(messages[end()]) == "tool") used_.push_back(false);
  }
  size_t end() const { return first_ + used_.size(); }

  // Takes the result of this call; null: there is none.
  const Value* take(const Value& call) {
    const Value* id = text_member(call, "id");
    for (size_t i = 0; id != nullptr && i < used_.size(); ++i) {
      const Value* of = text_member(messages_[first_ + i], "tool_call_id");
      if (used_[i] || of == nullptr || of->text() != id->text()) continue;
      used_[i] = true;
      return &messages_[first_ + i];
    }
    return nullptr;
  }
  void give_rest(jinja::Values& made) const {
    for (size_t i = 0; i < used_.size(); ++i)
      if (!used_[i]) made.push_back(messages_[first_ + i]);
  }

 private:
  const jinja::Values& messages_;
  size_t first_;
  std::vector<bool> used_;
};

}  // namespace

Value part_calls(Meter& meter, const Value& messages, const TemplateTraits& traits) {
  if (!traits.calls || traits.several_calls) return messages;
  jinja::Values made;
  const jinja::Values& given = messages.items();
  for (size_t i = 0; i < given.size(); ++i) {
    const jinja::Values* calls = calls_of(given[i]);
    if (calls == nullptr || calls->size() < 2) {
      made.push_back(given[i]);
      continue;
    }
    Results results(given, i + 1);
    for (const Value& call : *calls) {
      Value one = &call == &calls->front() ? given[i] : make_message(meter, "assistant", {});
      made.push_back(with_member(meter, one, "tool_calls", make_list(meter, {call})));
      if (const Value* result = results.take(call)) made.push_back(*result);
    }
    results.give_rest(made);
    i = results.end() - 1;
  }
  return make_list(meter, std::move(made));
}

Value place_system(Meter& meter, const Value& messages, const TemplateTraits& traits) {
  SystemPlaces places(meter, traits);
  for (const Value& message : messages.items()) places.add(message);
  return make_list(meter, places.take_all());
}

Value fit_contents(Meter& meter, const Value& messages, const TemplateTraits& traits) {
  jinja::Values made;
  for (const Value& message : messages.items()) {
    const Value* content = message.dict().find("content");
    const ContentForms& forms = forms_of(traits, role_of(message));
    const bool list = content != nullptr && content->is(Kind::list);
    if (traits.null_content && calls_of(message) != nullptr && content_text(message).empty()) {
      made.push_back(with_member(meter, message, "content", Value::none()));
    } else if (content == nullptr || (list && forms.parts && !content->items().empty())) {
      made.push_back(message);
    } else if (forms.text || !forms.part) {
      made.push_back(list ? with_text(meter, message, content_text(message)) : message);
    } else {
      made.push_back(
          with_member(meter, message, "content", list_of_one_text(meter, content_text(message))));
    }
  }
  return make_list(meter, std::move(made));
}

}  // namespace sluice
