#include "tests/kernels/trapped_tiles.h"

#if defined(__x86_64__)

#include <signal.h>
#include <ucontext.h>

#include "tests/kernels/emulated_tiles.h"

namespace sluice::test {
namespace {

namespace tiles = cpu::SLUICE_ISA;

// An instruction with a three-byte VEX prefix and the opcode map 0F38 (Intel SDM, volume 2, 2.3.5).
struct Instruction {
  int prefix;  // pp: 0 none, 1 66, 2 F3, 3 F2
  int opcode;
  int mode, reg, rm;  // ModRM
  int third;          // VEX.vvvv
  uint64_t address;   // of the memory operand: its base alone where `stride` is its index
  int64_t stride;
  int length;
};

uint64_t register_value(const ucontext_t& context, int number) {
  static constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// False where it is not of that form.
bool decode(const ucontext_t& context, Instruction& in) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): registers hold addresses
  const auto* at = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false;  // W0, L0
  const int more_reg = (at[1] & 0x80) == 0 ? 8 : 0, more_index = (at[1] & 0x40) == 0 ? 8 : 0;
  const int more_base = (at[1] & 0x20) == 0 ? 8 : 0;
  in.prefix = at[2] & 3;
  in.third = ~(at[2] >> 3) & 15;
  in.opcode = at[3];
  in.mode = at[4] >> 6;
  in.reg = (at[4] >> 3 & 7) + more_reg;
  in.rm = at[4] & 7;
  in.length = 5;
  if (in.mode == 3) return true;
  int base = in.rm + more_base;
  in.stride = 0;
  if (in.rm == 4) {  // SIB
    const int sib = at[in.length++], index = (sib >> 3 & 7) + more_index;
    base = (sib & 7) + more_base;
    if (index != 4) in.stride = static_cast<int64_t>(register_value(context, index) << (sib >> 6));
  }
  if (in.mode == 0 && (base & 7) == 5) return false;  // no base
  in.address = register_value(context, base);
  if (in.mode == 1) in.address += static_cast<uint64_t>(static_cast<int8_t>(at[in.length]));
  if (in.mode == 2) {
    int32_t displacement = 0;
    std::memcpy(&displacement, at + in.length, sizeof displacement);
    in.address += static_cast<uint64_t>(int64_t{displacement});
  }
  in.length += in.mode == 1 ? 1 : in.mode == 2 ? 4 : 0;
  return true;
}

// False where it is none of those that HardwareTiles has.
bool execute(const Instruction& in) {
  const bool memory = in.mode != 3;
  auto* at = reinterpret_cast<void*>(in.address);  // NOLINT(performance-no-int-to-ptr)
  switch (in.opcode << 4 | in.prefix) {
    case 0x490:
      if (memory) {
        tiles::need(in.reg == 0 && in.stride == 0, "LDTILECFG of a plain address");
        tiles::emulate_configure(*static_cast<const tiles::TileConfig*>(at));
      } else {
        tiles::emulated = {};
      }
      return true;
    case 0x493:
      tiles::emulate_zero(in.reg);
      return !memory;
    case 0x4b1:  // past L1
    case 0x4b3:
      tiles::emulate_load(in.reg, at, in.stride);
      return memory;
    case 0x4b2:
      tiles::emulate_store(in.reg, at, in.stride);
      return memory;
    case 0x5c2:
      tiles::emulate_product_bf16(in.reg, in.rm, in.third);
      return !memory;
    case 0x5e2:
      tiles::emulate_product_i8(in.reg, in.rm, in.third);
      return !memory;
    default:
      return false;
  }
}

void on_illegal_instruction(int, siginfo_t*, void* where) {
  auto& context = *static_cast<ucontext_t*>(where);
  Instruction in{};
  if (decode(context, in) && execute(in)) {
    context.uc_mcontext.gregs[REG_RIP] += in.length;
  } else {
    signal(SIGILL, SIG_DFL);
  }
}

}  // namespace

void trap_tiles() {
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

}  // namespace sluice::test

#else

namespace sluice::test {
void trap_tiles() {}
}  // namespace sluice::test

#endif
