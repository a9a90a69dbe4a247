package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// caller is an engine that calls the first tool, about the weather in Rome, and then says its result.
// An answer without tools has no end.
func caller() *handlerstest.FakeEngine {
	var running atomic.Int32
	e := &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if last := r.Messages[len(r.Messages)-1]; last.Role == "tool" {
			return handlerstest.Replay(handlerstest.WordEvent(1, "It is "), handlerstest.WordEvent(2, strings.Trim(last.Content, `"`)), handlerstest.DoneEvent(infer.FinishStop))
		}
		if len(r.Tools) > 0 {
			return handlerstest.Replay(callOfWeather(r.WholeCalls)...)
		}
		return func(yield func(infer.Event, error) bool) {
			running.Add(1)
			defer running.Add(-1)
			for tick := time.NewTicker(2 * time.Millisecond); ; {
				select {
				case <-tick.C:
					if !yield(handlerstest.WordEvent(1, "more "), nil) {
						return
					}
				case <-ctx.Done():
					yield(infer.Event{}, context.Cause(ctx))
					return
				}
			}
		}
	}}
	ready := e.Status()
	e.OnStatus = func() infer.Status {
		s := ready
		s.Running = int(running.Load())
		return s
	}
	return e
}

func callOfWeather(whole bool) []infer.Event {
	first, second := handlerstest.WordEvent(1, ""), handlerstest.WordEvent(2, "")
	if first.Token.Calls = []reply.CallDelta{{ID: "weather01", Name: "weather", Arguments: `{"city":`}}; whole {
		first.Token.Calls[0].Arguments += `"Rome"}`
		return []infer.Event{first, handlerstest.DoneEvent(infer.FinishCalls)}
	}
	second.Token.Calls = []reply.CallDelta{{Arguments: `"Rome"}`}}
	return []infer.Event{first, second, handlerstest.DoneEvent(infer.FinishCalls)}
}

// clientResult is a line of what tries the clients.
type clientResult struct{ Client, Version, Feature, Error string }

// TestClients runs published clients against the server: make clients installs them and prints the
// table. M40_LLM_CLIENTS is the folder with their packages; without it the test is skipped, as it
// needs packages that the project does not.
func TestClients(t *testing.T) {
	modules := os.Getenv("M40_LLM_CLIENTS")
	if modules == "" {
		t.Skip("M40_LLM_CLIENTS is not set: make clients sets it")
	}
	modules, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	results := tryClients(t, modules, "node", "testdata/clients/clients.mjs")
	if program := os.Getenv("M40_LLM_CLIENTS_GO"); program != "" {
		results = append(results, tryClients(t, modules, program)...)
	}
	if len(results) < 24 {
		t.Errorf("only %d features of clients were tried", len(results))
	}
	for _, r := range results {
		if r.Error != "" {
			t.Errorf("%s %s: %s does not work: %s", r.Client, r.Version, r.Feature, r.Error)
		}
	}
	t.Log("\n" + clientTable(results))
}

// tryClients runs a program that prints clientResults.
func tryClients(t *testing.T, modules, program string, args ...string) (results []clientResult) {
	t.Helper()
	real, scripted, embedder := handlerstest.Server(t, handlerstest.OpenGuide(t)), handlerstest.Server(t, caller()), handlerstest.Server(t, openEmbedder(t))
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), "M40_LLM_CLIENTS="+modules, "SERVER="+real.URL, "SCRIPTED="+scripted.URL, "EMBEDDER="+embedder.URL, "AI_SDK_LOG_WARNINGS=false")
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, &problems)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r clientResult
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Client != "" { // a client may print something itself
			results = append(results, r)
		}
	}
	return results
}

// clientTable returns a row for each client and a column for each feature.
func clientTable(results []clientResult) string {
	var clients, features []string
	works := map[[2]string]string{}
	for _, r := range results {
		client := r.Client + " " + r.Version
		if !slices.Contains(clients, client) {
			clients = append(clients, client)
		}
		if !slices.Contains(features, r.Feature) {
			features = append(features, r.Feature)
		}
		works[[2]string{client, r.Feature}] = map[bool]string{true: "yes", false: "NO"}[r.Error == ""]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-48s", "")
	for _, feature := range features {
		fmt.Fprintf(&b, "%-12s", feature)
	}
	for _, client := range clients {
		fmt.Fprintf(&b, "\n%-48s", client)
		for _, feature := range features {
			fmt.Fprintf(&b, "%-12s", works[[2]string{client, feature}])
		}
	}
	return b.String()
}
