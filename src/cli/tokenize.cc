// sluice tokenize, sluice detokenize: text to ids and back. MODEL may hold tokenizer files only.
#include <span>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/common.h"
#include "src/cli/input.h"
#include "src/cli/verbs.h"
#include "src/models/source.h"
#include "src/text/token_stream.h"
#include "src/text/tokenizer.h"

namespace sluice::cli {
namespace {

struct TokenizeOptions : CommonOptions {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> ids;
  std::optional<std::string> jsonl;
  bool no_special = false;
  bool skip_special = false;
};

// Exactly one of the ways to give the input.
void check_one(int given, const char* names) {
  if (given != 1) fail(ErrorKind::usage, "give the input as one of {}", names);
}

Tokenizer load_tokenizer(const TokenizeOptions& o) {
  std::optional<Tokenizer> tokenizer =
      open_model({o.model_path, {}, o.outside_links()})->tokenizer();
  if (!tokenizer) fail(ErrorKind::refused, "{}", Tokenizer::missing(o.model));
  for (const std::string& w : tokenizer->warnings()) log::warning("{}", w);
  return *std::move(tokenizer);
}

Json tokenize_line(const Tokenizer& tokenizer, const JsonFields& request) {
  bool special = request.boolean_or("add_special_tokens", true);
  return {{"ids", tokenizer.encode(request.string("text"), special)}};
}

Json detokenize_line(const Tokenizer& tokenizer, const JsonFields& request) {
  const Json& list = request.raw("ids");
  std::vector<int32_t> ids;
  for (const Json& id : list.is_array() ? list : Json::array()) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX)
      ids.push_back(id.get<int32_t>());
  }
  if (!list.is_array() || ids.size() != list.size())
    fail(ErrorKind::refused, "{}: ids must be a list of token ids", request.where());
  return {{"text", tokenizer.decode(ids, request.boolean_or("skip_special_tokens", false))}};
}

// A bad request ends the work with an error that names the line.
void each_request(const std::string& path, const std::stop_token& stop, const auto& answer) {
  each_line(path, stop, [&](const std::string& line, const std::string& where) {
    const Json request = parse_json(line, where);
    return answer(JsonFields(request, where));
  });
}

// Ids as they come: as print_json() would {"ids": [...]}, or 1,2,3.
class IdPrinter {
 public:
  explicit IdPrinter(bool json) : json_(json) {}

  void add(std::span<const int32_t> ids) {
    std::string text;
    for (int32_t id : ids) {
      text += json_ ? (any_ ? ",\n    " : "{\n  \"ids\": [\n    ") : (any_ ? "," : "");
      fmt::format_to(std::back_inserter(text), "{}", id);
      any_ = true;
    }
    print(text);
  }
  void finish() {
    if (json_) print(any_ ? "\n  ]\n}" : "{\n  \"ids\": []\n}");
    print("\n");
  }

 private:
  bool json_;
  bool any_ = false;
};

void tokenize_file(const TokenizeOptions& o, const Tokenizer& tokenizer,
                   const std::stop_token& stop) {
  io::InputStream input = open_input(*o.file, "--file", stop);
  TokenStream stream(tokenizer, !o.no_special);
  IdPrinter printer(o.json);
  for (bool ended = false; !ended;) {
    std::string_view piece = input.read();
    ended = piece.empty();
    std::vector<int32_t> ids;
    ended ? stream.finish({}, ids) : stream.add(piece, ids);
    printer.add(ids);
  }
  printer.finish();
}

void tokenize(const TokenizeOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  check_one(int(o.text.has_value()) + int(o.file.has_value()) + int(o.jsonl.has_value()),
            "--text, --file or --jsonl");
  Tokenizer tokenizer = load_tokenizer(o);
  if (o.jsonl) {
    each_request(*o.jsonl, stop,
                 [&](const JsonFields& request) { return tokenize_line(tokenizer, request); });
    return;
  }
  if (o.file) return tokenize_file(o, tokenizer, stop);
  IdPrinter printer(o.json);
  printer.add(tokenizer.encode(*o.text, !o.no_special));
  printer.finish();
}

void detokenize(const TokenizeOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  check_one(int(o.ids.has_value()) + int(o.jsonl.has_value()), "--ids or --jsonl");
  Tokenizer tokenizer = load_tokenizer(o);
  if (o.jsonl) {
    each_request(*o.jsonl, stop,
                 [&](const JsonFields& request) { return detokenize_line(tokenizer, request); });
    return;
  }
  std::vector<int32_t> ids = parse_token_ids(*o.ids, "--ids");
  for (int32_t id : ids) {
    if (!tokenizer.has(id))
      fail(ErrorKind::usage, "--ids: token id {} is not in the vocabulary", id);
  }
  std::string text = tokenizer.decode(ids, o.skip_special);
  if (o.json) {
    print_json({{"text", text}});
  } else {
    print(text + "\n");
  }
}

}  // namespace

void define_tokenize(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* verb = app.add_subcommand("tokenize", "Convert text to token ids");
  verb->footer(
      "Examples:\n"
      "  sluice tokenize MODEL --text \"Hello, world\"\n"
      "  sluice tokenize MODEL --jsonl requests.jsonl\n"
      "A line of --jsonl: {\"text\": \"Hello\", \"add_special_tokens\": true}");
  o->texts_only = true;
  add_basic_options(*verb, *o, stop);
  verb->add_option("--text", o->text, "Tokenize this text");
  verb->add_option("--file", o->file, "Tokenize the text in this file; - for standard input")
      ->type_name("FILE");
  verb->add_option("--jsonl", o->jsonl,
                   "Answer each line of this file, a JSON request; - for standard input")
      ->type_name("FILE");
  verb->add_flag("--no-special-tokens", o->no_special,
                 "Do not add the tokenizer's special tokens (BOS, ...)");
  verb->callback([o, stop] { tokenize(*o, stop); });
}

void define_detokenize(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* verb = app.add_subcommand("detokenize", "Convert token ids to text");
  verb->footer(
      "Examples:\n"
      "  sluice detokenize MODEL --ids 1,15043,29892\n"
      "  sluice detokenize MODEL --jsonl requests.jsonl\n"
      "A line of --jsonl: {\"ids\": [1, 15043], \"skip_special_tokens\": false}");
  o->texts_only = true;
  add_basic_options(*verb, *o, stop);
  verb->add_option("--ids", o->ids, "Decode these token ids: 1,2,3");
  verb->add_option("--jsonl", o->jsonl,
                   "Answer each line of this file, a JSON request; - for standard input")
      ->type_name("FILE");
  verb->add_flag("--skip-special-tokens", o->skip_special, "Leave special tokens out of the text");
  verb->callback([o, stop] { detokenize(*o, stop); });
}

}  // namespace sluice::cli
