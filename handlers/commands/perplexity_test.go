package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
	"m40-llm/infer/perplexity"
)

const poem = "The model reads the text and says how likely each token was. It is asked nothing, and it answers nothing: it only reads."

func TestPerplexityIsThatOfTheScoredPromptOfTheAPI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "poem.txt")
	if err := os.WriteFile(file, []byte(poem), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := execute(t, nil, "", "perplexity", "--kv", "f32", "--json", file)
	var got perplexity.Result
	if err := json.Unmarshal([]byte(ran.out), &got); err != nil || ran.code != cli.ExitOK {
		t.Fatalf("%+v, %v", ran, err)
	}
	post := serving(t, "--kv", "f32")
	status, answer := post("/v1/completions", fmt.Sprintf(`{"prompt":%q,"echo":true,"logprobs":0,"max_tokens":0}`, poem))
	var echo struct {
		Choices []struct {
			LogProbs struct {
				Tokens []*float64 `json:"token_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(answer), &echo); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	sum, n := 0.0, 0
	for _, x := range echo.Choices[0].LogProbs.Tokens {
		if x != nil {
			sum += *x
			n++
		}
	}
	want := math.Exp(-sum / float64(n))
	if n < 10 || got.Predicted != n || math.Abs(got.LogProb-sum/float64(n)) > 1e-4 || math.Abs(got.Perplexity/want-1) > 1e-4 {
		t.Errorf("got %+v, want %g of %d tokens", got, want, n)
	}
}

func TestPerplexityPrintsALineOrSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "long.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat(poem, 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	latin := filepath.Join(dir, "latin.txt")
	if err := os.WriteFile(latin, []byte("caf\xe9 au lait"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		in   string
		code int
		says string
	}{
		{"a text that is piped in", nil, poem, cli.ExitOK, "tokens predicted in one window of"},
		{"a file of several windows", []string{"--ctx", "64", file}, "", cli.ExitOK, "windows of 64; the last "},
		{"nothing", nil, "", cli.ExitFailed, "nothing of it can be predicted"},
		{"a file that there is not", []string{filepath.Join(dir, "none.txt")}, "", cli.ExitFailed, "no such file"},
		{"a file that is not UTF-8", []string{latin}, "", cli.ExitFailed, "not UTF-8"},
		{"a window of nothing", []string{"--ctx", "1", file}, "", cli.ExitUsage, "--ctx 1 must be at least 2"},
		{"a window beyond the model's context", []string{"--ctx", "100000", file}, "", cli.ExitFailed, "context"},
		{"a model that there is not", []string{"--model", "nobody/nothing", file}, "", cli.ExitFailed, "there is no model called"},
		{"a model and a file", []string{"guide", "--ctx", "64", file}, "", cli.ExitOK, "windows of 64; the last "},
		{"a model whose text is piped in", []string{"guide"}, poem, cli.ExitOK, "tokens predicted in one window of"},
		{"a model that there is not before the file", []string{"nobody/nothing", file}, "", cli.ExitFailed, "there is no model called"},
		{"two models", []string{"--model", "guide", "other", file}, "", cli.ExitUsage, "name two models"},
		{"a model and two files", []string{"guide", file, latin}, "", cli.ExitUsage, "argument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, nil, c.in, append([]string{"perplexity"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.out+got.errs, c.says) {
				t.Errorf("got %+v, want code %d and %q", got, c.code, c.says)
			}
		})
	}
}

// Ctrl-C ends a measurement, and leaves the end of a server or of a download to itself.
func TestASignalEndsCommandsThatHaveNoEndOfTheirOwn(t *testing.T) {
	own := []string{"serve", "run", "pull", "rm", "passphrase", "worker"}
	for name := range commands {
		ended := false
		run(context.Background(), &cli.Terminal{
			In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Env: func(string) string { return "" },
			EndOnSignal: func() { ended = true },
		}, []string{name, "-h"})
		if ended == slices.Contains(own, name) {
			t.Errorf("%s: a signal ends the process: %v", name, ended)
		}
	}
}
