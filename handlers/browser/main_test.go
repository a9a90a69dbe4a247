// Package browser has the tests that need Chromium: journeys through the pages, what they look like, and what axe-core
// finds in them. What a test can show without a browser belongs to the packages that it is about.
package browser

import (
	"fmt"
	"os"
	"testing"

	"m40-llm/handlers/document"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	document.Serve()
	if dir := os.Getenv("HANDLERS_HELPER"); dir != "" {
		fmt.Fprintln(os.Stderr, playServer(dir))
		os.Exit(1)
	}
	// The clock of the regular expressions that colour code stops a second after the last.
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// tests closes the browser that they share before goroutines that are left are looked for.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer closeShared()
	return t.M.Run()
}
