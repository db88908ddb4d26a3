#include "src/load/output_file.h"

#include <system_error>

#include "src/base/error.h"
#include "src/base/log.h"

namespace sluice {

bool write_output_file(const OutputFile& file, OutputDirectory& out, std::span<std::byte> memory,
                       bool verify, const std::stop_token& stop,
                       const std::function<void(io::LanesOutput&)>& fill) {
  const std::filesystem::path path = out.path() / file.name;
  const auto is_whole = [&](const std::string& checksum) {
    std::error_code error;
    return std::filesystem::file_size(path, error) == file.bytes &&
           io::lanes_checksum(path, file.lanes, memory, stop) == checksum;
  };
  if (const auto earlier = out.finished(file.name)) {
    if (is_whole(*earlier)) return true;
    log::warning("{}: is damaged, and written again", file.name);
    out.forget(file.name);
  }
  io::LanesOutput output(path, file.lanes, memory);
  fill(output);
  const std::string checksum = output.finish();
  if (verify && !is_whole(checksum))
    fail(ErrorKind::runtime, "{}: reads back otherwise than it was written; the disk is at fault",
         io::printable(path.string()));
  out.note_finished(file.name, checksum);
  return false;
}

}  // namespace sluice
