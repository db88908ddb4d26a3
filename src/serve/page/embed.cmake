# Writes OUT, C++ with the bytes of FILES (a list of paths, separated by commas) for page.cc.
string(REPLACE "," ";" paths "${FILES}")
set(entries "")
foreach(path IN LISTS paths)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" bytes)
  file(SHA256 "${path}" digest)
  string(SUBSTRING "${digest}" 0 16 tag)
  string(APPEND entries "    {\"${name}\", \"\\\"${tag}\\\"\", R\"embedded(${bytes})embedded\"},\n")
endforeach()
file(WRITE "${OUT}" "// Made by src/serve/page/embed.cmake.
#include \"src/serve/page/page.h\"

namespace sluice {
namespace {
constexpr EmbeddedFile kFiles[] = {
${entries}};
}  // namespace
std::span<const EmbeddedFile> embedded_page() { return kFiles; }
}  // namespace sluice
")
