#include "src/chat/template_traits.h"

#include <optional>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/chat/chat_request.h"
#include "src/chat/chat_template.h"

namespace sluice {
namespace {

// Words that no template has.
constexpr const char* kProbeTool = "zqtoolzq";
constexpr const char* kToolName = "zqnamezq";
constexpr const char* kFirstWord = "zqfirstzq";
constexpr const char* kSecondWord = "zqsecondzq";
constexpr const char* kMarkWord = "zqmarkzq";
constexpr std::string_view kProbeTools = R"([{"type": "function", "function": {"name": "zqtoolzq",
  "description": "x", "parameters": {"type": "object", "properties":
  {"x": {"type": "string", "description": "x"}}, "required": ["x"]}}}])";

Json probe_message(const char* role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// A template that prints a list as it is also prints the mark.
Json probe_part(const char* text) {
  return {{"type", "text"}, {"text", text}, {kMarkWord, kMarkWord}};
}

// Its name tells less than its arguments: some templates show the id instead.
Json probe_call(const char* id, const char* said, bool text) {
  const Json arguments{{"x", said}};
  return {{"id", id},
          {"type", "function"},
          {"function",
           {{"name", kToolName}, {"arguments", text ? Json(arguments.dump()) : arguments}}}};
}

Json probe_result(const char* id, Json content) {
  Json message = probe_message("tool", std::move(content));
  message["tool_call_id"] = id;
  message["name"] = "f";
  return message;
}

class TemplateProbe {
 public:
  TemplateProbe(ChatTemplate& chat_template, bool tools)
      : template_(chat_template), tools_(tools) {}

  TemplateTraits traits() const {
    TemplateTraits found;
    found.user = contents(
        [&](Json content) { return Json::array({probe_message("user", std::move(content))}); });
    const Json user = probe_message("user", content_of(found.user, "x"));
    found.system = contents([&](Json content) {
      return Json::array({probe_message("system", std::move(content)), user});
    });
    found.assistant = contents([&](Json content) {
      return Json::array({user, probe_message("assistant", std::move(content)), user});
    });
    const Json assistant = probe_message("assistant", content_of(found.assistant, "y"));
    found.tool = contents([&](Json content) {
      return Json::array(
          {user, calling(found, {"x"}), probe_result("zqcall001", std::move(content))});
    });
    const Json note = probe_message("system", content_of(found.system, kSecondWord));
    found.first_system = shows({note, said(found.user)}, {kFirstWord, kSecondWord});
    found.later_system =
        shows({said(found.user), assistant, note, user}, {kFirstWord, kSecondWord});
    found.tools = tools_ && shows(Json::array({said(found.user)}), {kProbeTool});
    find_calls(user, found);
    return found;
  }

 private:
  // The first way of showing a call and its result that the template knows.
  void find_calls(const Json& user, TemplateTraits& found) const {
    found.calls = false;
    for (const bool null : {false, true}) {
      for (const bool text : {false, true}) {
        found.null_content = null;
        found.text_arguments = text;
        const Json result = probe_result("zqcall001", content_of(found.tool, kSecondWord));
        if (!shows({user, calling(found, {kFirstWord}), result}, {kFirstWord, kSecondWord}))
          continue;
        found.calls = true;
        found.call_names = shows({user, calling(found, {kFirstWord}), result}, {kToolName});
        found.several_calls = shows({user, calling(found, {kFirstWord, kSecondWord}),
                                     probe_result("zqcall001", content_of(found.tool, "r")),
                                     probe_result("zqcall002", content_of(found.tool, "s"))},
                                    {kFirstWord, kSecondWord});
        return;
      }
    }
    found.null_content = found.text_arguments = false;
  }

  // A message that calls a tool with each of these arguments.
  static Json calling(const TemplateTraits& found, std::initializer_list<const char*> all) {
    Json calls = Json::array();
    for (const char* said : all) {
      calls.push_back(
          probe_call(calls.empty() ? "zqcall001" : "zqcall002", said, found.text_arguments));
    }
    Json message = probe_message("assistant", content_of(found.assistant, ""));
    if (found.null_content) message["content"] = nullptr;
    message["tool_calls"] = std::move(calls);
    return message;
  }

  static Json content_of(const ContentForms& forms, const char* text) {
    if (forms.text || !forms.part) return text;
    Json list = Json::array();
    list.push_back({{"type", "text"}, {"text", text}});
    return list;
  }
  static Json said(const ContentForms& forms) {
    return probe_message("user", content_of(forms, kFirstWord));
  }

  // nullopt: the template refuses it.
  std::optional<std::string> render(const Json& messages) const {
    constexpr const char* kWhere = "a probe of the chat template";
    constexpr int64_t kMostSteps = 500'000;  // a template that takes more is not waited for
    constexpr uint64_t kMostBytes = 16 * MiB;
    Json request{{"messages", messages}};
    if (tools_) request["tools"] = Json::parse(kProbeTools);
    try {
      jinja::Context context({.steps = kMostSteps, .bytes = kMostBytes});
      set_chat(context, jinja::read_json(context.meter(), request.dump(), kWhere), true, kWhere);
      complete_chat(context);
      return template_.render(context);
    } catch (const Error&) {
      return std::nullopt;
    } catch (const jinja::Fault&) {
      return std::nullopt;
    }
  }

  bool shows(const Json& messages, std::initializer_list<const char*> words) const {
    const std::optional<std::string> text = render(messages);
    if (!text) return false;
    for (const char* word : words)
      if (text->find(word) == text->npos) return false;
    return true;
  }

  template <class Make>
  ContentForms contents(Make make) const {
    auto shown = [&](const Json& content, bool second) {
      const std::optional<std::string> text = render(make(content));
      return text && text->find(kFirstWord) != text->npos && text->find(kMarkWord) == text->npos &&
             (!second || text->find(kSecondWord) != text->npos);
    };
    ContentForms found;
    found.text = shown(kFirstWord, false);
    found.part = shown(Json::array({probe_part(kFirstWord)}), false);
    found.parts = shown(Json::array({probe_part(kFirstWord), probe_part(kSecondWord)}), true);
    return found;
  }

  ChatTemplate& template_;
  bool tools_;
};

}  // namespace

TemplateTraits find_traits(ChatTemplate& chat_template, bool tools) {
  return TemplateProbe(chat_template, tools).traits();
}

}  // namespace sluice
