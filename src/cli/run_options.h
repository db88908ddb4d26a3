// The options of run, and the models that they ask for.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "src/cli/chat/chat_options.h"
#include "src/cli/common.h"
#include "src/cli/generation_options.h"
#include "src/cli/grammar_options.h"
#include "src/cli/signals.h"
#include "src/engine/engine.h"

namespace sluice::cli {

struct RunOptions : CommonOptions {
  std::optional<std::string> text;  // behind MODEL
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> token_ids;
  ChatOptions chat;
  bool interactive = false;  // --chat
  std::string reasoning = "show";
  bool context_shift = false;
  bool no_history = false;
  bool no_wrap = false;
  int64_t max_tokens = 128;
  GenerationOptions generation;
  GrammarOptions grammar;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::set<std::string> given;  // names of the options on the command line

  bool has(const std::string& option) const { return given.contains(option); }
};

// A model, and the draft model beside it, in memory.
class RunModels {
 public:
  // `longest`: a request with as many tokens as any will have; `prompt_tokens`: of them its
  // prompt's. `draft`: of open_draft(). Nothing has been placed.
  RunModels(const RunOptions& options, Planner& planner, std::unique_ptr<Planner> draft,
            const Request& longest, int64_t prompt_tokens, const std::stop_token& stop);
  LoadedModel& model() { return *model_; }
  // Lets tokens be drafted, as the options say.
  void prepare(Request& request);

 private:
  std::unique_ptr<Planner> draft_planner_;
  std::optional<LoadedModel> draft_model_;
  std::optional<LoadedModel> model_;
  std::optional<DraftModel> draft_;
  bool lookup_ = false;
};

// A conversation at the terminal, or by lines of standard input.
void chat(const RunOptions& options, SignalWatch& signals);

}  // namespace sluice::cli
