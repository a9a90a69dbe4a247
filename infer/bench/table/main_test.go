package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program writes a shell script that prints text, and appends the flags that it gets to a list.
func program(t *testing.T, name, text string) (path string, calls func() []string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	list := path + ".calls"
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\ncat <<'END'\n%s\nEND\n", list, text)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, func() []string {
		text, err := os.ReadFile(list)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

const ours = `{"prefill_tok_s": 200, "decode_tok_s": 36, "decode_bytes_per_token": 500000000, "decode_share": 0.75, "read_gb_s": 24, "load_seconds": 0.5,
	"parallel": [{"answers": 2, "decode_tok_s": 60}, {"answers": 8, "decode_tok_s": 180}]}`

func TestTheTableOfFormatsComparesBothPrograms(t *testing.T) {
	peer := `a line of a build
[{"n_prompt": 512, "n_gen": 0, "avg_ts": 100}, {"n_prompt": 0, "n_gen": 32, "avg_ts": 24}]`
	for _, c := range []struct {
		name, peer, want string
		runs             int // of the peer: a choice of two, then one a round
	}{
		{"with a peer", peer, "| q4_0 | 36.0 | 24.0 | 1.50 (1.50 to 1.50) | 75 % | 50 % | 200 | 100 | 2.00 (2.00 to 2.00) | 180 | 5.0 | 24.0 to 24.0 | 0.50 |", 5},
		{"without one", "", "| q4_0 | 36.0 | - | - | 75 % | - | 200 | - | - | 180 | 5.0 | 24.0 to 24.0 | 0.50 |", 0},
		{"with a peer that cannot run the model", "no table", "| q4_0 | 36.0 | - | - | 75 % | - | 200 | - | - | 180 | 5.0 | 24.0 to 24.0 | 0.50 |", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			m40, calls := program(t, "m40-llm", ours)
			tab := table{ours: m40, shape: "tiny", rounds: 3, prompt: 512, answer: 32, threads: 2, out: &out, dir: t.TempDir()}
			peerCalls := func() []string { return nil }
			if c.peer != "" {
				var path string
				path, peerCalls = program(t, "llama-bench", c.peer)
				tab.peer = []string{"env", "X=1", path}
			}
			if err := tab.formats(t.Context(), []string{"q4_0"}); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := regexp.MustCompile(` +`).ReplaceAllString(lines[len(lines)-1], " "); got != c.want {
				t.Errorf("got the row\n%s, want\n%s", got, c.want)
			}
			if got := len(calls()); got != 3 {
				t.Errorf("the program ran %d times, want 3", got)
			}
			if got := len(peerCalls()); got != c.runs {
				t.Errorf("the peer ran %d times, want %d", got, c.runs)
			}
		})
	}
}

func TestTheTableOfAGPUComparesEachPromptInTurn(t *testing.T) {
	var out bytes.Buffer
	m40, calls := program(t, "m40-llm", ours)
	peer, peerCalls := program(t, "llama-bench", `[{"n_prompt": 512, "n_gen": 0, "avg_ts": 100}, {"n_prompt": 0, "n_gen": 32, "avg_ts": 24}]`)
	tab := table{ours: m40, peer: []string{peer}, shape: "tiny", rounds: 2, prompts: []string{"512", "64"}, answer: 32, out: &out, dir: t.TempDir()}
	if err := tab.gpu(t.Context(), []string{"q4_0"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := "| q4_0 | 200 | 100 | 2.00 (2.00 to 2.00) | 200 | 100 | 2.00 (2.00 to 2.00) | 36.0 | 24.0 | 1.50 (1.50 to 1.50) |"
	if got := regexp.MustCompile(` +`).ReplaceAllString(lines[len(lines)-1], " "); got != want {
		t.Errorf("got the row\n%s, want\n%s", got, want)
	}
	for i, want := range []string{"-p 512", "-p 512", "-p 64", "-p 64"} {
		if got := calls(); len(got) != 4 || !strings.Contains(got[i], "--device cuda "+want) {
			t.Errorf("run %d of %q, want %q on the GPU", i, got, want)
		}
		if got := peerCalls(); len(got) != 4 || !strings.Contains(got[i], "-ngl 99 -fa 1 "+want) {
			t.Errorf("run %d of the peer of %q, want %q on the GPU", i, got, want)
		}
	}
}

func TestAProgramThatFailsEndsTheTable(t *testing.T) {
	tab := table{ours: "/bin/false", shape: "tiny", rounds: 1, prompt: 8, answer: 1, threads: 1, out: &bytes.Buffer{}, dir: t.TempDir()}
	if err := tab.formats(t.Context(), []string{"q8_0"}); err == nil || !strings.Contains(err.Error(), "q8_0: false: exit status 1") {
		t.Errorf("got %v", err)
	}
}

func TestAnUnknownTableIsRefused(t *testing.T) {
	err := (&table{}).run(t.Context(), []string{"small", "smaller"}, nil)
	if want := `there is no table "smaller"; there are contexts, disturbed, formats, gpu, load, small`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
