// The lines of OpenAI's batch API: a request a line in, a response a line out, matched by their
// custom_id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/checksum.h"
#include "src/base/json.h"

namespace sluice {

struct BatchLine {
  std::string where;  // "FILE, line N"
  // Id of the response: "batch_req_" and the custom_id, or "batch_line_N" where that names no
  // request. A resumed batch finds responses by it.
  std::string id;
  Json custom_id;     // as given; null where there is none
  std::string fault;  // why this is no request; then there is no body
  OrderedJson body;
  uint64_t parse_bytes = 0;  // what parsing it takes at most
};

// The `number`-th line of `file`, which is not empty. Its faults are its own.
BatchLine parse_batch_line(std::string_view text, const std::string& file, uint64_t number);
// The line is named by its number, and has a fault.
BatchLine faulty_batch_line(const std::string& file, uint64_t number, std::string fault);
// Marks a line whose custom_id was in the file before.
void make_repeated(BatchLine& line, uint64_t number);

std::string id_of_batch_line(uint64_t number);
// The id of a response, which has the custom_id of a request or says the number of its line.
std::string batch_response_id(const std::string& id, const std::string& custom_id);
Digest digest_of(std::string_view id);

// The most bytes that parsing a line and encoding its texts takes.
uint64_t parse_bytes(std::string_view line);
// That encoding a text takes, beside it.
uint64_t encode_bytes(std::string_view text);

}  // namespace sluice
