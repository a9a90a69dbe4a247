// Package world runs the program with what others have made: real weights, published clients in Python and other
// engines. make world installs these and sets M40_LLM_WORLD, the folder they are in; without it the tests are skipped.
package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// folder returns the folder of a set of packages, or skips the test with the reason.
func folder(t *testing.T, set string) string {
	t.Helper()
	root := os.Getenv("M40_LLM_WORLD")
	if root == "" {
		t.Skip("M40_LLM_WORLD is not set: make world sets it")
	}
	path := filepath.Join(root, set)
	if _, err := os.Stat(filepath.Join(path, "installed")); err != nil {
		add(result{Client: set, Feature: "–", Result: "skipped: cannot be installed here"})
		t.Skipf("%s is not installed: %v", set, err)
	}
	return path
}

var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "m40-llm-world-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "m40-llm")
	out, err := exec.Command("go", "build", "-o", path, "..").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("M40_LLM_WORLD") != "" {
		if path, err := program(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	if path := os.Getenv("M40_LLM_COMPATIBILITY"); path != "" {
		if err := writeTable(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// serve starts the program's server and returns its address when it is ready.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	start(t, "http://"+addr+"/health", path, append([]string{"serve", "--addr", addr, "--open=false", "--data", t.TempDir()}, args...)...)
	return "http://" + addr
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a server until the test ends, and waits until its health route answers 200.
func start(t *testing.T, health, path string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("the server wrote:\n%s", log.String())
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if got, err := http.Get(health); err == nil {
			got.Body.Close()
			if got.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("%s ended:\n%s", path, log.String())
		case <-ctx.Done():
			t.Fatalf("%s is not ready after two minutes", path)
		}
	}
}

// post sends a body as JSON, and reads the answer into the value that to points to.
func post(t *testing.T, url string, body, to any) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.Post(url, "application/json", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	answer, err := io.ReadAll(got.Body)
	if err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v, %.300s", url, got.Status, err, answer)
	}
	if err := json.Unmarshal(answer, to); err != nil {
		t.Fatal(err)
	}
}

// result is a row of docs/compatibility.md.
type result struct{ Client, Version, Feature, Result string }

var (
	resultsLock sync.Mutex
	results     []result
)

func add(r result) {
	resultsLock.Lock()
	defer resultsLock.Unlock()
	if !slices.Contains(results, r) {
		results = append(results, r)
	}
}

// writeTable writes the results as a page of the documentation.
func writeTable(path string) error {
	var b strings.Builder
	b.WriteString(`# Compatibility

Real weights, engines and clients that the program was run with, and what came of it. ` + "`make world`" + ` installs them, runs them and writes this page;
clients of npm and Go are in [clients.md](clients.md).

| client, engine or weights | version | what was run | result | date |
|---|---|---|---|---|
`)
	date := time.Now().UTC().Format(time.DateOnly)
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %.300s | %s |\n", r.Client, r.Version, cell.Replace(r.Feature), cell.Replace(r.Result), date)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
