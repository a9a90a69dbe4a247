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

// TestKernelsUnderSanitizers runs the other tests of this package and of package resident, without their largest inputs, with an
// emulator in which out-of-bounds access and undefined behaviour of a kernel abort the test. make sanitize
// runs them whole, and the tests of infer/cuda, which takes far longer.
func TestKernelsUnderSanitizers(t *testing.T) {
	fixtures.NeedCheck(t)
	emutest.Emulation(t) // skips the test if the tools for the build are missing
	probe := exec.Command("g++", "-fsanitize=address,undefined", "-shared", "-fPIC", "-x", "c++", "-o", os.DevNull, os.DevNull)
	if output, err := probe.CombinedOutput(); err != nil {
		fixtures.Skip(t, "g++ has no sanitizers: "+string(output))
	}
	sanitize := exec.Command("make", "-j", strconv.Itoa(runtime.NumCPU()), "sanitize", "LEVEL=test", "SANITIZED=-short . ./resident")
	sanitize.Env = append(os.Environ(), "M40_LLM_CHECK=") // with the types of make test
	if output, err := sanitize.CombinedOutput(); err != nil {
		t.Errorf("make sanitize: %v\n%s", err, output)
	}
}
