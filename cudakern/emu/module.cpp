// One module of cudakern/modules.txt: MODULE is its name, SOURCE its file. The namespace keeps
// its names local, because modules define the same names differently.
#include "../kernel.cuh"
#include "resident.h"

namespace {
const emu::Module module(MODULE);
#include SOURCE
}
