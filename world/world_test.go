// Package world runs the program with what others have made: real weights, published clients in Python and other
// engines. make world installs these and sets M40_LLM_WORLD, the folder they are in; without it the tests are skipped.
package world

import (
	"bytes"
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
	"testing"
	"time"

	"m40-llm/world/worldtest"
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
		err := readResults(os.Getenv("M40_LLM_RESULTS"))
		if err == nil {
			err = writeTable(path)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// startsWithin is how long a server may take until it is ready, however busy the machine is.
const startsWithin = 2 * time.Minute

// serve starts the program's server and returns its address when it is ready.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	cmd := exec.Command(path, append([]string{"serve", "--addr", addr, "--open=false", "--data", t.TempDir()}, args...)...)
	worldtest.Start(t, cmd, "http://"+addr+"/health", startsWithin)
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

// result is a row of docs/compatibility.md; fixtures.Report writes those of other packages.
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

// readResults adds the results of the tests of other packages, a line of JSON each.
func readResults(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for from := json.NewDecoder(f); ; {
		var r result
		if err := from.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		add(r)
	}
}

const tableHead = `# Compatibility

Real weights, engines and clients that the program was run with, and what came of it. ` + "`make world`" + ` installs them, runs them and writes this page;
a row stays, with its date, until what it says is run again. Clients of npm and Go are in [clients.md](clients.md).

| client, engine or weights | version | what was run | result | date |
|---|---|---|---|---|
`

// writeTable writes the results as a page of the documentation. Rows of the page that is there stay in their order, unless
// there is a result of the same client and feature; what was skipped replaces none.
func writeTable(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(path, table(string(old), results, time.Now().UTC().Format(time.DateOnly)), 0o644)
}

func table(old string, results []result, date string) []byte {
	var keys []string // of the rows, in their order
	rows := map[string]string{}
	_, below, _ := strings.Cut(old, "|---|---|---|---|---|\n")
	for line := range strings.Lines(below) {
		if cells := strings.Split(line, " | "); len(cells) == 5 {
			key := strings.TrimPrefix(cells[0], "| ") + " | " + cells[2]
			keys, rows[key] = append(keys, key), line
		}
	}
	cell := strings.NewReplacer("|", "&#124;", "\n", " ")
	for _, r := range results {
		key := r.Client + " | " + cell.Replace(r.Feature)
		if _, there := rows[key]; !there {
			keys = append(keys, key)
		} else if strings.HasPrefix(r.Result, "skipped") {
			continue
		}
		rows[key] = fmt.Sprintf("| %s | %s | %s | %.300s | %s |\n", r.Client, r.Version, cell.Replace(r.Feature), cell.Replace(r.Result), date)
	}
	var b strings.Builder
	b.WriteString(tableHead)
	for _, key := range keys {
		b.WriteString(rows[key])
	}
	return []byte(b.String())
}

func TestARowOfTheTableStaysUntilItIsRunAgain(t *testing.T) {
	before := table("", []result{{"a", "1", "chat", "works"}, {"b", "1", "a | b", "fails: x\ny"}, {"c", "", "stop", "works"}}, "2026-01-01")
	after := string(table(string(before), []result{{"c", "", "stop", "skipped: not here"}, {"a", "2", "chat", "fails"}, {"d", "", "new", "works"}}, "2026-02-02"))
	want := tableHead + `| a | 2 | chat | fails | 2026-02-02 |
| b | 1 | a &#124; b | fails: x y | 2026-01-01 |
| c |  | stop | works | 2026-01-01 |
| d |  | new | works | 2026-02-02 |
`
	if after != want {
		t.Errorf("got\n%s\nwant\n%s", after, want)
	}
}
