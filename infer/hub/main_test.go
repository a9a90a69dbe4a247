package hub

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Environment variables of the test program when it runs as a pull that will be killed.
const (
	killDir      = "M40_LLM_TEST_KILL_DIR"
	killEndpoint = "M40_LLM_TEST_KILL_ENDPOINT"
	killSegment  = "M40_LLM_TEST_KILL_SEGMENT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		os.Exit(pullUntilKilled(dir, os.Getenv(killEndpoint)))
	}
	goleak.VerifyTestMain(m)
}

// pullUntilKilled pulls a model and writes the journal every millisecond.
func pullUntilKilled(dir, endpoint string) int {
	p, err := NewPuller(New(Options{Dir: dir, Types: supportedTypes}), PullOptions{Endpoint: endpoint})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p.journalEvery = time.Millisecond
	if os.Getenv(killSegment) != "" {
		p.segment = testSegment
	}
	d, err := p.Resolve(context.Background(), "org/repo:Q8_0")
	if err == nil {
		_, err = p.Pull(context.Background(), d, false, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
