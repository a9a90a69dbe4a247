package commands

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"m40-llm/handlers/cli"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// serving runs the server with args and an empty home folder until the test ends, and
// returns a function that posts to it, or gets where there is nothing to post.
func serving(t *testing.T, args ...string) (post func(path, body string) (status int, answer string)) {
	t.Helper()
	out, in := io.Pipe()
	signals := make(chan os.Signal, 1)
	home := t.TempDir()
	terminal := &cli.Terminal{In: strings.NewReader(""), Out: in, Err: io.Discard, Signals: signals, Env: func(name string) string {
		return map[string]string{"HOME": home}[name]
	}}
	code := make(chan int, 1)
	go func() { code <- run(context.Background(), terminal, append([]string{"--addr", ":0"}, args...)) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimPrefix(strings.TrimSpace(line), "m40-llm listening on ")
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		signals <- syscall.SIGTERM
		if got := <-code; got != cli.ExitOK {
			t.Errorf("the server ended with code %d", got)
		}
	})
	return func(path, body string) (int, string) {
		t.Helper()
		ask := func() (*http.Response, error) {
			return client.Post(url+path, "application/json", strings.NewReader(body))
		}
		if body == "" {
			ask = func() (*http.Response, error) { return client.Get(url + path) }
		}
		response, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(answer)
	}
}

// TestModelsThatCannotBeUsed asks the running server for each, and then whether it
// still answers.
func TestModelsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	good := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0})
	cases := []struct {
		name string
		file []byte
		says []string
	}{
		{"a file that is no model", []byte("hello world"), []string{"not a GGUF file"}},
		{"a file that ends in its header", good[:500], []string{"ends too early"}},
		{"a file that ends in its weights", good[:len(good)-1], []string{"cut short"}},
		{"an architecture that is not known", []byte(strings.Replace(string(good), "llama", "hyena", 1)), []string{`architecture \"hyena\"`}},
		{"a weight format without kernels", gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q1_0, Dim: 256, FFN: 256}), []string{`tensor \"`, "weights in Q1_0"}},
	}
	for i, c := range cases {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("m%d.gguf", i)), c.file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	post := serving(t, "--models", dir)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			status, answer := post("/v1/completions", fmt.Sprintf(`{"model":"m%d","prompt":"x"}`, i))
			if status != http.StatusInternalServerError || !strings.Contains(answer, `"code":"model_file"`) {
				t.Errorf("status %d: %s", status, answer)
			}
			for _, part := range c.says {
				if !strings.Contains(answer, part) {
					t.Errorf("it does not say %q: %s", part, answer)
				}
			}
		})
	}
	if status, answer := post("/v1/completions", `{"model":"guide","prompt":"x","max_tokens":2}`); status != http.StatusOK {
		t.Errorf("afterwards, the built-in model: status %d: %s", status, answer)
	}
}

// TestModelFilesThatChangeInUse changes the files of resident models.
func TestModelFilesThatChangeInUse(t *testing.T) {
	dir := t.TempDir()
	good := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0})
	path := filepath.Join(dir, "m.gguf")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
	post := serving(t, "--models", dir, "--threads", "2")
	asks := func(when string, want int, says string) {
		t.Helper()
		status, answer := post("/v1/completions", `{"model":"m","prompt":"Once upon a time","max_tokens":4,"ignore_eos":true}`)
		if status != want || !strings.Contains(answer, says) {
			t.Errorf("%s: status %d, want %d and %q: %s", when, status, want, says, answer)
		}
	}
	asks("at first", http.StatusOK, "text_completion")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	asks("its file removed, but still open", http.StatusOK, "text_completion")
	write(good)
	post("/v1/completions", `{"model":"guide","prompt":"x","max_tokens":1}`)
	asks("a new file in its place", http.StatusOK, "text_completion")
	if err := os.Truncate(path, int64(len(good)/2)); err != nil {
		t.Fatal(err)
	}
	asks("its file cut short in use, of which the weights are in memory", http.StatusOK, "text_completion")
	post("/v1/completions", `{"model":"guide","prompt":"x","max_tokens":1}`)
	asks("its file cut short when it is loaded again", http.StatusInternalServerError, "cut short")
	asks("asked again", http.StatusInternalServerError, "cut short")
	write(good)
	asks("the file made good", http.StatusOK, "text_completion")
}

func TestWrongSettingsOfTheServer(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		args string
		says string
	}{
		{"more threads than are of use", nil, "--threads 5000", "at most 1024"},
		{"more answers than are of use", nil, "--parallel 100000", "at most 1024"},
		{"a number in words from the environment", map[string]string{"M40_LLM_PARALLEL": "many"}, "", `"many" in the environment variable M40_LLM_PARALLEL`},
		{"a page's address as a host", nil, "--allow-host http://x/y", "--allow-host"},
		{"any page as an origin", nil, "--cors-origin *", "--cors-origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, c.env, "", strings.Fields("serve --addr :0 "+c.args)...)
			if got.code != cli.ExitUsage || !strings.Contains(got.errs, c.says) || strings.Count(got.errs, "\n") != 1 {
				t.Errorf("code %d, %q", got.code, got.errs)
			}
		})
	}
	t.Run("a model in the environment does not keep template from taking a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "t.jinja")
		if err := os.WriteFile(path, []byte("{{ x }}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := execute(t, map[string]string{"M40_LLM_MODEL": "other"}, `{"x":"y"}`, "template", "--template", path); got.code != 0 || got.out != "y" {
			t.Errorf("%+v", got)
		}
	})
}
