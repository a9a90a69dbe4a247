package cudakern_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/fixtures"
)

// TestKernelsUnderSanitizers runs the other tests of kernels where every read and write out
// of bounds and all undefined behaviour of a kernel ends them. make emu-sanitize runs those
// of infer/cuda too, which takes far longer.
func TestKernelsUnderSanitizers(t *testing.T) {
	emutest.Emulation(t) // there are the tools to build it
	probe := exec.Command("g++", "-fsanitize=address,undefined", "-shared", "-fPIC", "-x", "c++", "-o", os.DevNull, os.DevNull)
	if output, err := probe.CombinedOutput(); err != nil {
		fixtures.Skip(t, "g++ has no sanitizers: "+string(output))
	}
	if output, err := exec.Command("make", "-j", strconv.Itoa(runtime.NumCPU()), "sanitize", "SANITIZED=.").CombinedOutput(); err != nil {
		t.Errorf("make sanitize: %v\n%s", err, output)
	}
}
