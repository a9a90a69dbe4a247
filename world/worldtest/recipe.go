package worldtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fixtures"
)

// StartOfVLLM is how long vLLM may take until it is ready: on two cores that others use too, half an hour was measured.
const StartOfVLLM = time.Hour

// VLLM returns what makes the command that starts vLLM on a CPU at a port of 127.0.0.1, by the recipe of
// docs/upstreams.md and with its model called model. The test is skipped where make world has not installed vLLM.
func VLLM(t testing.TB, model string) func(port string) *exec.Cmd {
	t.Helper()
	world := filepath.Dir(LargePackages(t, "vllm"))
	line := Recipe(t, "upstreams.md", "VLLM_CPU_KVCACHE_SPACE=")
	return func(port string) *exec.Cmd {
		cmd := exec.Command("bash", "-c", "exec env "+strings.Replace(line, "--port 8000", "--port "+port, 1)+" --served-model-name "+model)
		cmd.Dir = world
		return cmd
	}
}

// LargePackages returns the folder of a set of packages that make world installs in make torture alone, and skips the test
// where it is not there.
func LargePackages(t testing.TB, set string) string {
	t.Helper()
	if !fixtures.Torture() {
		t.Skipf("M40_LLM_TORTURE is not set to 1: %s is large", set)
	}
	folder := filepath.Join(os.Getenv("M40_LLM_WORLD"), set)
	if _, err := os.Stat(filepath.Join(folder, "installed")); os.Getenv("M40_LLM_WORLD") == "" || err != nil {
		t.Skipf("M40_LLM_WORLD names no folder with %s: make world sets it", set)
	}
	return folder
}

// Recipe returns the block of code of a page of the documentation that begins with a text.
func Recipe(t testing.TB, page, beginning string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, err = os.Stat(filepath.Join(root, "go.mod")); err != nil && root != "/"; _, err = os.Stat(filepath.Join(root, "go.mod")) {
		root = filepath.Dir(root)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(text), "\n```") {
		if _, code, _ := strings.Cut(block, "\n"); i%2 == 1 && strings.HasPrefix(code, beginning) {
			return code
		}
	}
	t.Fatalf("docs/%s has no block of code that begins with %s", page, beginning)
	return ""
}
