// Facts about a chat template, found out by rendering small conversations, as nothing else tells
// them.
#pragma once

namespace sluice {

class ChatTemplate;

// The contents that a template shows of the messages of a role.
struct ContentForms {
  bool text = true;
  bool part = false;   // a list of one {"type": "text", "text"}
  bool parts = false;  // a list of several
};

struct TemplateTraits {
  ContentForms user = {};
  ContentForms system = {};
  ContentForms assistant = {};
  ContentForms tool = {};
  bool first_system = true;     // a message of the system before all others
  bool later_system = true;     // ... behind others
  bool tools = true;            // what can be called
  bool calls = true;            // calls of earlier messages, and their results
  bool call_names = false;      // with the names of their tools
  bool null_content = false;    // calls are shown where the content of their message is null
  bool text_arguments = false;  // of a call are a text of JSON for it; else an object
  bool several_calls = true;    // more than one of them in a message
};

// Finds the traits of the template that is rendered with tools, or of that without.
TemplateTraits find_traits(ChatTemplate& chat_template, bool tools);

}  // namespace sluice
