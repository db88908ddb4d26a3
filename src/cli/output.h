// Results on stdout, and in files that options name.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "src/base/json_writer.h"

namespace sluice::cli {

// To stdout, checked: a full disk or a closed pipe is an Error(runtime). On the main thread.
void print(std::string_view text);
void print_json(const Json& json);
// Writes a document of any size as it is made.
using WriteJson = std::function<void(JsonWriter&)>;
void print_json(const WriteJson& write);
bool stdout_is_terminal();
// Text of a model, on a terminal without what would steer that.
void print_speech(std::string_view text);

// The whole of a file, as io::write_whole(); the error names `option`.
void write_text(const std::string& path, std::string_view text, const char* option,
                const std::stop_token& stop);
void write_json(const std::string& path, const WriteJson& write, const char* option,
                const std::stop_token& stop);
// Refuses what cannot be written, before any work is done.
void check_writable(const char* option, const std::string& path);

}  // namespace sluice::cli
