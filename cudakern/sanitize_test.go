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
// of bounds and all undefined behaviour of a kernel ends them.
func TestKernelsUnderSanitizers(t *testing.T) {
	emutest.Emulation(t) // there are the tools to build it
	probe := exec.Command("g++", "-fsanitize=address,undefined", "-shared", "-fPIC", "-x", "c++", "-o", os.DevNull, os.DevNull)
	if output, err := probe.CombinedOutput(); err != nil {
		fixtures.Skip(t, "g++ has no sanitizers: "+string(output))
	}
	packages := "."
	if os.Getenv("M40_LLM_TORTURE") == "1" {
		packages = ". ../infer/cuda" // with what every device must keep
	}
	build := exec.Command("make", "-j", strconv.Itoa(runtime.NumCPU()), "sanitize", "SANITIZED="+packages)
	build.Env = append(os.Environ(), "M40_LLM_TORTURE=") // the full counts would take an hour here
	if output, err := build.CombinedOutput(); err != nil {
		t.Errorf("make sanitize: %v\n%s", err, output)
	}
}
