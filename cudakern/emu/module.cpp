// One module of cudakern/modules.txt: MODULE is its name, SOURCE its file. Everything in
// the file is local to it, as other modules hold the same names with other definitions.
#include "../kernel.cuh"

namespace {
const emu::Module module(MODULE);
#include SOURCE
}
