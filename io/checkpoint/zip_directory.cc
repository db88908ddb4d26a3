#include "io/checkpoint/zip_directory.h"

#include <unistd.h>
#include <unzip.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_set>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

constexpr uint64_t kMostZipMembers = 1 << 20;
constexpr uint64_t kMostZipNameBytes = 64 * MiB;  // of all together
constexpr unsigned kZipEncrypted = 1;             // a bit of the flags

// The file as minizip reads it, which takes most numbers byte by byte.
class ZipInput {
 public:
  ZipInput(const Fd& fd, uint64_t size) : fd_(fd.get()), size_(size) {}

  zlib_filefunc64_def functions() {
    zlib_filefunc64_def f{};
    f.zopen64_file = [](void* self, const void*, int) { return self; };
    f.zread_file = [](void*, void* self, void* to, uLong bytes) -> uLong {
      return static_cast<ZipInput*>(self)->read(static_cast<char*>(to), bytes);
    };
    f.zwrite_file = [](void*, void*, const void*, uLong) -> uLong { return 0; };
    f.ztell64_file = [](void*, void* self) -> ZPOS64_T {
      return static_cast<ZipInput*>(self)->at_;
    };
    f.zseek64_file = [](void*, void* self, ZPOS64_T offset, int origin) {
      return static_cast<ZipInput*>(self)->seek(offset, origin);
    };
    f.zclose_file = [](void*, void*) { return 0; };
    f.zerror_file = [](void*, void* self) { return static_cast<ZipInput*>(self)->failed_ ? 1 : 0; };
    f.opaque = this;
    return f;
  }
  // False where the file has not that much.
  bool read_at(uint64_t at, std::span<char> to) {
    const uint64_t before = at_;
    at_ = std::min(at, size_);
    const bool whole = read(to.data(), to.size()) == to.size();
    at_ = before;
    return whole;
  }

 private:
  uint64_t read(char* to, uint64_t bytes) {
    uint64_t done = 0;
    while (done < bytes && at_ < size_) {
      if (at_ < window_at_ || at_ >= window_at_ + window_bytes_) {
        window_at_ = at_;
        const ssize_t got = pread(fd_, window_.data(), window_.size(), static_cast<off_t>(at_));
        window_bytes_ = got > 0 ? static_cast<uint64_t>(got) : 0;
        failed_ = failed_ || got <= 0;
        if (got <= 0) break;
      }
      const uint64_t from = at_ - window_at_;
      const uint64_t now = std::min({bytes - done, window_bytes_ - from, size_ - at_});
      std::memcpy(to + done, window_.data() + from, now);
      done += now;
      at_ += now;
    }
    return done;
  }
  long seek(uint64_t offset, int origin) {
    const uint64_t from = origin == ZLIB_FILEFUNC_SEEK_CUR   ? at_
                          : origin == ZLIB_FILEFUNC_SEEK_END ? size_
                                                             : 0;
    if (__builtin_add_overflow(from, offset, &at_) || at_ > size_) {
      at_ = size_;
      return -1;
    }
    return 0;
  }

  int fd_;
  uint64_t size_;
  uint64_t at_ = 0;
  bool failed_ = false;
  std::array<char, 4096> window_{};
  uint64_t window_at_ = 0;
  uint64_t window_bytes_ = 0;
};

class ZipDirectory {
 public:
  ZipDirectory(const Fd& fd, const CheckpointFile& file, const std::string& where)
      : input_(fd, file.size), file_(file), where_(where) {
    zlib_filefunc64_def functions = input_.functions();
    zip_.reset(unzOpen2_64(nullptr, &functions));
    if (zip_ == nullptr)
      refuse(
          "it has no directory of its members, or a damaged one: it is damaged or was not "
          "downloaded completely");
  }

  std::vector<ZipMember> read() {
    unz_global_info64 all{};
    need(unzGetGlobalInfo64(zip_.get(), &all));
    if (all.number_entry > kMostZipMembers)
      refuse(fmt::format("it claims {} members, more than the {} that are accepted",
                         all.number_entry, kMostZipMembers));
    std::vector<ZipMember> members;
    for (uint64_t i = 0; i < all.number_entry; ++i) {
      need(i == 0 ? unzGoToFirstFile(zip_.get()) : unzGoToNextFile(zip_.get()));
      members.push_back(member());
    }
    check_members(members);
    return members;
  }

 private:
  struct Close {
    void operator()(unzFile zip) const { unzClose(zip); }
  };

  // The header of the current member in the directory. minizip of Debian 12 does not read the
  // numbers of 64 bits (zip64) that follow it, nor does any tell where data begin: both are read
  // here.
  struct Header {
    std::string name;
    std::string extra;
    uint64_t compressed = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // of its header before the data
    uint32_t crc = 0;
    unsigned method = 0;
    unsigned flags = 0;
  };

  Header header() {
    constexpr size_t kBytes = 46;
    unz64_file_pos place{};
    need(unzGetFilePos64(zip_.get(), &place));
    const uint64_t at = place.pos_in_zip_directory;
    const std::string fixed = read_at(at, kBytes);
    if (!fixed.starts_with("PK\x01\x02")) need(UNZ_BADZIPFILE);
    Header header;
    header.flags = number<uint16_t>(fixed, 8);
    header.method = number<uint16_t>(fixed, 10);
    header.crc = number<uint32_t>(fixed, 16);
    header.compressed = number<uint32_t>(fixed, 20);
    header.bytes = number<uint32_t>(fixed, 24);
    header.offset = number<uint32_t>(fixed, 42);
    header.name = read_at(at + kBytes, number<uint16_t>(fixed, 28));
    header.extra = read_at(at + kBytes + header.name.size(), number<uint16_t>(fixed, 30));
    read_zip64(header);
    return header;
  }

  // The numbers that 32 bits do not hold, in their order.
  void read_zip64(Header& header) const {
    constexpr unsigned kZip64 = 1;
    constexpr size_t kFieldHead = 4;
    const std::string& extra = header.extra;
    for (size_t at = 0; at + kFieldHead <= extra.size();) {
      const unsigned id = number<uint16_t>(extra, at);
      const size_t end = at + kFieldHead + number<uint16_t>(extra, at + 2);
      if (end > extra.size()) break;
      size_t next = at + kFieldHead;
      for (uint64_t* value : {&header.bytes, &header.compressed, &header.offset}) {
        if (id != kZip64 || *value != UINT32_MAX) continue;
        if (next + sizeof(uint64_t) > end) need(UNZ_BADZIPFILE);
        *value = number<uint64_t>(extra, next);
        next += sizeof(uint64_t);
      }
      if (id == kZip64) return;
      at = end;
    }
  }

  ZipMember member() {
    Header header = this->header();
    name_bytes_ += header.name.size();
    if (name_bytes_ > kMostZipNameBytes)
      refuse(fmt::format("names of its members have more than {} bytes", kMostZipNameBytes));
    ZipMember member;
    member.name = std::move(header.name);
    member.bytes = header.bytes;
    member.crc = header.crc;
    member.stored = header.method == 0 && (header.flags & kZipEncrypted) == 0;
    if (!member.stored) return member;
    if (header.compressed != header.bytes) refuse_member(member, "has two sizes");
    member.offset = data_offset(member, header.offset);
    if (member.offset > file_.size || member.bytes > file_.size - member.offset)
      refuse_member(member, "lies beyond the end of the file");
    return member;
  }

  // Behind the member's own header, whose name and extra fields have lengths of their own.
  uint64_t data_offset(const ZipMember& member, uint64_t at) {
    constexpr size_t kBytes = 30;
    if (at > file_.size || file_.size - at < kBytes)
      refuse_member(member, "lies beyond the end of the file");
    const std::string fixed = read_at(at, kBytes);
    if (!fixed.starts_with("PK\x03\x04") || number<uint16_t>(fixed, 8) != 0 ||
        number<uint16_t>(fixed, 26) != member.name.size())
      refuse_member(member, "is described otherwise where its data begin");
    return at + kBytes + number<uint16_t>(fixed, 26) + number<uint16_t>(fixed, 28);
  }

  std::string read_at(uint64_t at, size_t bytes) {
    std::string text(bytes, '\0');
    if (!input_.read_at(at, text)) need(UNZ_BADZIPFILE);
    return text;
  }
  template <class Number>
  static Number number(std::string_view text, size_t at) {
    Number value{};
    std::memcpy(&value, text.data() + at, sizeof value);
    return value;
  }

  void check_members(const std::vector<ZipMember>& members) const {
    std::unordered_set<std::string_view> names;
    std::vector<const ZipMember*> by_place;
    for (const ZipMember& m : members) {
      if (!names.insert(m.name).second) refuse_member(m, "is there twice");
      if (m.stored && m.bytes > 0) by_place.push_back(&m);
    }
    std::ranges::sort(by_place, {}, &ZipMember::offset);
    for (size_t i = 1; i < by_place.size(); ++i) {
      if (by_place[i]->offset - by_place[i - 1]->offset < by_place[i - 1]->bytes)
        refuse_member(*by_place[i],
                      fmt::format("overlaps member {}", printable(by_place[i - 1]->name)));
    }
  }

  void need(int result) const {
    if (result != UNZ_OK)
      refuse("the directory of its members is damaged, or shorter than it says");
  }
  [[noreturn]] void refuse_member(const ZipMember& member, std::string_view fault) const {
    refuse(fmt::format("member {} {}", printable(member.name), fault));
  }
  [[noreturn]] void refuse(std::string_view fault) const {
    fail(ErrorKind::refused, "{}: is no sound zip archive: {}", where_, fault);
  }

  ZipInput input_;
  const CheckpointFile& file_;
  const std::string& where_;
  std::unique_ptr<std::remove_pointer_t<unzFile>, Close> zip_;
  uint64_t name_bytes_ = 0;
};

}  // namespace

std::vector<ZipMember> read_zip_directory(const Fd& fd, const CheckpointFile& file,
                                          const std::string& where) {
  return ZipDirectory(fd, file, where).read();
}

bool has_its_crc(const Fd& fd, const CheckpointFile& file, const ZipMember& member) {
  constexpr uint64_t kPiece = MiB;
  std::string bytes;
  uLong crc = crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < member.bytes; at += bytes.size()) {
    bytes.resize(std::min(kPiece, member.bytes - at));
    read_exactly(fd, file.path, member.offset + at, bytes);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  }
  return crc == member.crc;
}

}  // namespace sluice::io
