package web

import (
	"os/exec"
	"path/filepath"
	"testing"

	"m40-llm/infer/fixtures"
)

// TestScripts runs the tests of parts of scripts that need no browser, if node is there: version 20 or newer.
func TestScripts(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		fixtures.Skip(t, "node is not installed")
	}
	files, err := filepath.Glob("js-tests/*.test.js")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no tests", err)
	}
	out, err := exec.CommandContext(t.Context(), node, append([]string{"--test"}, files...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
