// Names of models on the Hugging Face hub, and of what of them is meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// ORG/NAME[@REVISION][:TAG]. Also the forms that web pages and other programs give: hf.co/ORG/NAME,
// https://huggingface.co/ORG/NAME/tree/REVISION, .../resolve/REVISION/FILE and
// .../blob/REVISION/FILE.
struct HubName {
  std::string owner;  // "": an old name without one (gpt2), of what other programs have fetched
  std::string name;
  std::string revision = "main";  // a branch, a tag or a commit
  std::string tag;                // "Q4_K_M" or a file's name: which of several GGUF files; "": any

  std::string repository() const { return owner.empty() ? name : owner + "/" + name; }
  // The name as a user types it.
  std::string text() const;
};

// nullopt: `text` has not the form of a name. A path may have that form, too: callers look for one
// first.
std::optional<HubName> parse_hub_name(std::string_view text);
// The same of NAME[@REVISION][:TAG], which most words are.
std::optional<HubName> parse_bare_name(std::string_view text);

}  // namespace sluice
