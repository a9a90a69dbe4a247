package commands

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
	"m40-llm/store"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main())
	}
	os.Setenv(asProgram, "1") // for the processes that tests start
	goleak.VerifyTestMain(m)
}

// result is what a command left behind.
type result struct {
	code      int
	out, errs string
}

// execute runs a command to its end, with an empty home folder.
func execute(t *testing.T, env map[string]string, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	home := t.TempDir()
	code := run(context.Background(), &cli.Terminal{
		In:  strings.NewReader(in),
		Out: &out,
		Err: &errs,
		Env: func(name string) string {
			if name == "HOME" {
				return home
			}
			return env[name]
		},
	}, args)
	return result{code, out.String(), errs.String()}
}

// tinyModel writes a small model with random weights and returns its path.
func tinyModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun_AnArgumentThatIsNoModelIsAQuestionOrNamesTheNearest(t *testing.T) {
	for _, question := range []string{"What is top-k?", "hello"} {
		want := execute(t, nil, "", "run", "guide", question, "--seed", "7", "--max-tokens", "12")
		if got := execute(t, nil, "", "run", question, "--seed", "7", "--max-tokens", "12"); got != want || got.code != 0 || got.out == "" {
			t.Errorf("%q: got %+v, want %+v", question, got, want)
		}
	}
	for name, want := range map[string]string{"guyde": "did you mean guide?", "gui": "did you mean guide?", "mistral:7b": "If this is a question, put the name of a model before it", "a/b": "there is no model called", "x.gguf": "a file of that path does not exist either"} {
		if got := execute(t, nil, "", "run", name); got.code != 2 || got.out != "" || !strings.Contains(got.errs, want) || strings.Count(got.errs, "\n") != 1 {
			t.Errorf("%q: got %+v, want one line with %q", name, got, want)
		}
	}
}

func TestHelpBeginsWithTheCommands(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}} {
		got := execute(t, nil, "", args...)
		if got.code != 0 || !strings.HasPrefix(got.out, "usage: m40-llm [COMMAND]") || !strings.Contains(got.out, "--worker") {
			t.Errorf("%q: %+v", args, got)
		}
		for name := range commands {
			if name != "worker" && !strings.Contains(got.out, "\n  "+name+" ") {
				t.Errorf("%q leaves out %s", args, name)
			}
		}
	}
}

func TestCommands(t *testing.T) {
	tiny := tinyModel(t)
	vocabulary := gguftest.New().
		Set("general.architecture", "llama").
		Set("tokenizer.ggml.model", "gpt2").Set("tokenizer.ggml.pre", "gpt-2").
		Set("tokenizer.ggml.tokens", []string{"a", "b", "ab", "<s>"}).
		Set("tokenizer.ggml.token_type", []int32{1, 1, 1, 3}).
		Set("tokenizer.ggml.merges", []string{"a b"}).
		Set("tokenizer.ggml.bos_token_id", 3).Set("tokenizer.ggml.add_bos_token", true).
		WriteFile(t)
	jinja := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(jinja, []byte(`{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}{{ strftime_now("%Y-%m-%d") if today }}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		in   string
		args string // divided at spaces
		want result // out and errs: parts that must be there, or nothing at all
	}{
		{"an unknown command is wrong usage", nil, "", "fetch mistral", result{2, "", `there is no command "fetch"; see m40-llm -h`}},
		{"an unknown command that is like another one names that", nil, "", "lst", result{2, "", `there is no command "lst" (did you mean list?); see m40-llm -h`}},
		{"help of a misspelt command names the one that is meant", nil, "", "help tokenise", result{2, "", `there is no command "tokenise" (did you mean tokenize?); see m40-llm -h`}},
		{"a model as a flag is told its place", nil, "", "run --model guide hi", result{2, "", "there is no flag --model: its place is m40-llm run [MODEL] [PROMPT]; see m40-llm run -h"}},
		{"an unknown flag is wrong usage", nil, "", "list --jsn", result{2, "", "m40-llm list -h"}},
		{"help is asked for in either way", nil, "", "help", result{0, "tokenize   print the token ids", ""}},
		{"help of a command is asked for in either way", nil, "", "help bench", result{0, "usage: m40-llm bench", ""}},
		{"help of an unknown command is wrong usage", nil, "", "help fetch", result{2, "", `there is no command "fetch"; see m40-llm -h`}},
		{"the version is asked for in either way", nil, "", "--version", result{0, "m40-llm " + version, ""}},
		{"the version is asked for in short too", nil, "", "-v", result{0, "m40-llm " + version, ""}},
		{"the help of the program lists its commands and flags", nil, "", "-h", result{0, "tokenize   print the token ids", ""}},
		{"the help of a command explains its flags with their defaults", nil, "", "run -h", result{0, "low: the likeliest tokens. High: rarer ones too. 0: always the likeliest (default 0.7)", ""}},
		{"the version is printed", nil, "", "version", result{0, "m40-llm " + version, ""}},

		{"an address for other machines is refused without --lan", nil, "", "--addr 0.0.0.0:0", result{2, "", "add --lan, with which they must log in"}},
		{"an unknown model is refused before serving", nil, "", "serve --addr :0 --model nothing", result{1, "", `there is no model called "nothing"; the models here are guide`}},
		{"a folder of models that is not there is said", nil, "", "list --models /nowhere/models", result{0, "guide", `the folder "/nowhere/models" for models does not exist yet`}},
		{"an unknown device is wrong usage", nil, "", "serve --addr :0 --device gpu", result{2, "", `--device "gpu" is not one of auto, cpu, cuda, cuda:0,1 … and ref`}},
		{"GPUs have numbers", nil, "", "serve --addr :0 --device cuda:0,b", result{2, "", `--device cuda:0,b does not list different numbers of GPUs, counted from 0, as cuda:0,1`}},
		{"a GPU is named once", nil, "", "serve --addr :0 --device cuda:1,1", result{2, "", `--device cuda:1,1 does not list different numbers`}},
		{"an unknown cache format is wrong usage", nil, "", "serve --addr :0 --kv q5_0", result{2, "", `--kv: "q5_0" is none of auto, f16, f32, q8_0, q4_0`}},
		{"keys in f32 with other values are wrong usage", nil, "", "serve --addr :0 --kv f32/q8_0", result{2, "", `possible for both alone`}},
		{"a place for the engine that there is not is wrong usage", nil, "", "serve --addr :0 --worker sometimes", result{2, "", `--worker "sometimes" is neither always nor never`}},
		{"visitors whom nobody can let in are wrong usage", nil, "", "serve --visitors 30", result{2, "", "--visitors 30 cannot be used: other machines must reach the server, by --lan and without --api-key"}},
		{"visitors without limits are wrong usage", nil, "", "serve --lan --visitors many", result{2, "", "--visitors many cannot be used: give the answers that each visitor has a day, such as 30"}},
		{"a worker without a server is wrong usage", nil, "", "worker", result{2, "", "m40-llm serve starts it"}},
		{"a negative thread count is wrong usage", nil, "", "run --threads -1 guide hi", result{2, "", "cannot be negative"}},
		{"more least than most tokens of a picture are wrong usage", nil, "", "run --image-min-tokens 9 --image-max-tokens 8 guide hi", result{2, "", "--image-max-tokens"}},

		{"a prompt gets one answer", nil, "", "run guide Hello --temp 0 --max-tokens 8", result{0, "\n", ""}},
		{"a prompt can come through a pipe", nil, "Hello\n", "run --temp 0 --max-tokens 8", result{0, "\n", ""}},
		{"a model can be given by its path", nil, "", "run " + tiny + " hi --max-tokens 3 --seed 1", result{0, "\n", ""}},
		{"the reference device and the f32 cache run too", nil, "", "run " + tiny + " hi --max-tokens 3 --device ref --kv f32", result{0, "\n", ""}},
		{"quantised keys and values run too", nil, "", "run " + tiny + " hi --max-tokens 3 --device cpu --kv q8_0/q4_0", result{0, "\n", "the KV cache of layers 0-1 stays f16"}},
		{"a sampler that is seldom used has a flag", nil, "", "run guide Hello --mirostat 1", result{2, "", "must be 0 (off) or 2"}},
		{"a setting out of its range is wrong usage", nil, "", "run guide hi --temp -1", result{2, "", "--temp -1 must be from 0 to"}},
		{"a temperature that makes all tokens alike is wrong usage", nil, "", "run guide hi --temp 99", result{2, "", "--temp 99 must be from 0 to 20"}},
		{"a key that others could guess is wrong usage on a LAN", nil, "", "serve --addr :0 --lan --api-key abc", result{2, "", "--api-key has 3 characters"}},
		{"a file that is no model is refused by run in one line", nil, "", "run " + jinja + " hi", result{1, "", "not a GGUF file"}},
		{"a file that is no model is refused by show in one line", nil, "", "show " + jinja, result{1, "", "not a GGUF file"}},
		{"a setting from the environment counts", map[string]string{"M40_LLM_TEMP": "-1"}, "", "run guide hi", result{2, "", "--temp -1 must be from 0 to"}},
		{"an answer is held to a schema from a file", nil, "", "run guide Hello --json-schema " + form(t, `{"const": {"a": [1]}}`), result{0, `{"a":[1]}`, ""}},
		{"an answer is held to a grammar from a file", nil, "", "run guide Hello --grammar " + form(t, `root ::= "abc"`), result{0, "abc", ""}},
		{"a grammar that is none is wrong usage", nil, "", "run guide Hello --grammar " + form(t, "abc"), result{2, "", "expected ::= after abc"}},
		{"a schema that is not there is an error", nil, "", "run guide Hello --json-schema " + filepath.Join(t.TempDir(), "no"), result{1, "", "failed to read the schema"}},
		{"an empty prompt is wrong usage", nil, "\n", "run", result{2, "", "the prompt is empty"}},
		{"a prompt beyond the context is refused with the numbers", nil, "", "run guide --ctx 32 " + strings.Repeat("x", 100), result{1, "", "32"}},
		{"a folder is no model", nil, "", "run " + t.TempDir() + " hi", result{1, "", "a directory"}},

		{"the list names the built-in model", nil, "", "list", result{0, "guide  15.2 MB  llama   14.2 M      Q8_0   1024     yes   CPU      MIT", ""}},
		{"the list finds the models of a folder", nil, "", "list --models " + filepath.Dir(tiny), result{0, "tiny", ""}},

		{"a text becomes an array of token ids", nil, "ab<s>a", "tokenize --model " + vocabulary, result{0, "[3,2,3,0]\n", ""}},
		{"without special tokens none is added and none parsed", nil, "abb", "tokenize --no-special --model " + vocabulary, result{0, "[2,1]\n", ""}},
		{"lines of JSON become lines of arrays", nil, "\"ab\"\n\"b\"\n", "tokenize --jsonl --no-special --model " + vocabulary, result{0, "[2]\n[1]\n", ""}},
		{"the built-in tokenizer is used if none is named", nil, "Hello", "tokenize", result{0, "[", ""}},
		{"a file that is no model is refused", nil, "", "tokenize --model " + jinja, result{1, "", "not a GGUF file"}},

		{"a request becomes the prompt of the model's template", nil, `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true}`, "template --model " + tiny,
			result{0, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", ""}},
		{"a template can come from a file and the time from a flag", nil, `{"messages":[{"role":"user","content":"hi"}],"today":true,"bos_token":"<s>"}`, "template --template " + jinja + " --now 2025-03-14T15:09:26",
			result{0, "<s>[hi]2025-03-14", ""}},
		{"requests line by line give objects", nil, "{\"messages\":[]}\n{\n", "template --jsonl --template " + jinja, result{0, "{\"output\":\"\"}\n{\"error\":", ""}},
		{"a request that is no JSON is refused", nil, "{", "template", result{1, "", "m40-llm: "}},
		{"a model and a template together are wrong usage", nil, "", "template --model guide --template " + jinja, result{2, "", "exclude each other"}},
		{"a time that is none is wrong usage", nil, "", "template --now yesterday", result{2, "", `--now "yesterday"`}},
		{"a model without a template says so", nil, "{}", "template --model " + vocabulary, result{1, "", "has no chat template"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, c.env, c.in, strings.Fields(c.args)...)
			if got.code != c.want.code {
				t.Errorf("exit code %d, want %d", got.code, c.want.code)
			}
			if !strings.Contains(got.out, c.want.out) || c.want.code != 0 && got.out != "" {
				t.Errorf("wrote %q, want %q in it", got.out, c.want.out)
			}
			if !strings.Contains(got.errs, c.want.errs) || c.want.errs == "" && got.errs != "" || strings.Count(got.errs, "\n") > 1 {
				t.Errorf("complained %q, want one line with %q", got.errs, c.want.errs)
			}
		})
	}
	t.Run("the list as JSON can be read back", func(t *testing.T) {
		got := execute(t, nil, "", "list", "--json", "--models", filepath.Dir(tiny))
		var models []infer.ModelInfo
		if err := json.Unmarshal([]byte(got.out), &models); err != nil || len(models) != 2 || models[0].Name != "guide" || !models[0].Demo || models[1].Path != tiny {
			t.Errorf("got %+v, %v", models, err)
		}
	})
	t.Run("the same seed gives the same answer", func(t *testing.T) {
		ask := []string{"run", "guide", "Tell me a story", "--seed", "7", "--max-tokens", "30"}
		if a, b := execute(t, nil, "", ask...), execute(t, nil, "", ask...); a.out != b.out || a.code != 0 {
			t.Errorf("got %q and %q", a.out, b.out)
		}
	})
}

// TestTokenizeReference compares the command with token ids of another program.
func TestTokenizeReference(t *testing.T) {
	data, err := os.ReadFile(fixtures.Path(t, "tokenizers", "gpt-2.json"))
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Cases []struct {
			Text string
			IDs  []int32 `json:"ids"`
		}
	}
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	lines := json.NewEncoder(&in)
	for _, c := range reference.Cases {
		if err := lines.Encode(c.Text); err != nil {
			t.Fatal(err)
		}
	}
	got := execute(t, nil, in.String(), "tokenize", "--jsonl", "--no-special", "--model", fixtures.Path(t, "tokenizers", "vocab", "gpt-2.gguf"))
	out := bufio.NewScanner(strings.NewReader(got.out))
	out.Buffer(nil, 1<<20)
	for i, c := range reference.Cases {
		var ids []int32
		if !out.Scan() || json.Unmarshal(out.Bytes(), &ids) != nil || !reflect.DeepEqual(ids, append([]int32{}, c.IDs...)) {
			t.Errorf("case %d, %q: got %s, want %v", i, c.Text, out.Bytes(), c.IDs)
		}
	}
}

// TestServe walks the whole program: start, load, an answer over HTTP, a second start,
// stop.
func TestServe(t *testing.T) {
	outRead, out := io.Pipe()
	signals := make(chan os.Signal, 2)
	home := t.TempDir()
	terminal := &cli.Terminal{In: strings.NewReader(""), Out: out, Err: io.Discard, Signals: signals, Env: func(name string) string {
		return map[string]string{"HOME": home}[name]
	}}
	code := make(chan int, 1)
	go func() { code <- run(context.Background(), terminal, []string{"--addr", ":0", "--model", tinyModel(t)}) }()

	line, err := bufio.NewReader(outRead).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "m40-llm listening on ")
	if !ok {
		t.Fatalf("it says %q", line)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) (int, string) {
		t.Helper()
		response, err := client.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	t.Run("the page is there", func(t *testing.T) {
		if status, body := get("/"); status != http.StatusOK || !strings.Contains(body, "<html") {
			t.Errorf("status %d, %.100q", status, body)
		}
	})
	t.Run("health says loading until the model is ready", func(t *testing.T) {
		for {
			status, body := get("/health")
			if status == http.StatusOK && strings.Contains(body, `"model":"tiny"`) {
				return
			}
			if status != http.StatusServiceUnavailable || !strings.Contains(body, `"loading"`) {
				t.Fatalf("status %d, %s", status, body)
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Run("a question over the API is answered", func(t *testing.T) {
		response, err := client.Post(url+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":4,"seed":1}`))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer struct {
			Model string
			Usage struct {
				CompletionTokens int `json:"completion_tokens"`
			}
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != 200 || answer.Model != "tiny" || answer.Usage.CompletionTokens < 1 {
			t.Errorf("status %d, %+v, %v", response.StatusCode, answer, err)
		}
	})
	t.Run("ps shows the model, and who uses it", func(t *testing.T) {
		got := execute(t, nil, "", "ps", "--addr", strings.TrimPrefix(url, "http://"))
		for _, want := range []string{"tiny", "ready", "nobody", "its memory is needed"} {
			if got.code != 0 || !strings.Contains(got.out, want) {
				t.Errorf("got %+v, without %q", got, want)
			}
		}
	})
	t.Run("a path is no model name over the API", func(t *testing.T) {
		response, err := client.Post(url+"/v1/chat/completions", "application/json",
			strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, tinyModel(t))))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("status %d", response.StatusCode)
		}
	})
	t.Run("a second start says that it is running, with exit code 3", func(t *testing.T) {
		got := execute(t, nil, "", "serve", "--addr", strings.TrimPrefix(url, "http://"))
		if got.code != cli.ExitRunning || !strings.Contains(got.errs, url) {
			t.Errorf("code %d, %q", got.code, got.errs)
		}
	})
	t.Run("a second start on the same data folder says so too", func(t *testing.T) {
		got := execute(t, nil, "", "serve", "--addr", ":0", "--data", filepath.Join(home, ".m40-llm"))
		if got.code != cli.ExitRunning || !strings.Contains(got.errs, "data folder") {
			t.Errorf("code %d, %q", got.code, got.errs)
		}
	})
	t.Run("a signal ends it with exit code 0", func(t *testing.T) {
		client.CloseIdleConnections()
		signals <- syscall.SIGTERM
		if got := <-code; got != cli.ExitOK {
			t.Errorf("code %d", got)
		}
	})
}

// TestModelCommands pulls a model from a registry on this machine, shows, uses and
// removes it.
func TestModelCommands(t *testing.T) {
	data := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0})
	registry := hubtest.New(t, map[string][]byte{"tiny-Q8_0.gguf": data}, "tiny-Q8_0.gguf")
	dir := filepath.Join(t.TempDir(), "models")
	env := map[string]string{"HF_ENDPOINT": registry.API.URL, "OLLAMA_REGISTRY": registry.API.URL, "M40_LLM_MODELS": dir}
	path := filepath.Join(dir, "org", "repo", "tiny-Q8_0.gguf")
	for _, c := range []struct {
		name string
		args string // divided at spaces
		want result // out and errs: parts that must be there
	}{
		{"a pull prints by what name the model is asked for", "pull org/repo", result{0, "tiny-Q8_0\n", "org/repo/tiny-Q8_0.gguf, "}},
		{"a second pull finds it there", "pull hf.co/org/repo:Q8_0", result{0, "tiny-Q8_0\n", "done"}},
		{"the list has it", "list", result{0, "tiny-Q8_0", ""}},
		{"it can be shown", "show tiny-Q8_0", result{0, path, ""}},
		{"it can be shown by its path, as JSON", "show --json " + path, result{0, `"architecture": "llama"`, ""}},
		{"it gets a second name", "cp tiny-Q8_0 own/mine", result{0, "mine\n", ""}},
		{"which works", "rm --yes mine", result{0, "removed own/mine (", ""}},
		{"cp takes two names", "cp tiny-Q8_0", result{2, "", "name the model and its copy"}},
		{"the list has names only", "list --names", result{0, "guide\n", ""}},
		{"it answers", "run tiny-Q8_0 hi --max-tokens 3", result{0, "\n", ""}},
		{"it can be removed", "rm tiny-Q8_0", result{0, "removed org/repo/tiny-Q8_0 (", ""}},
		{"then it is gone", "show tiny-Q8_0", result{1, "", "there is no model called"}},
		{"a repository that is not there is an error", "pull org/none", result{1, "", "the repository org/none does not exist"}},
		{"a model of the Ollama library is pulled by its name", "pull model", result{0, "model\n", "from-ollama.com/library/model.gguf, "}},
		{"it is shown by the name with which it was pulled", "show model:latest", result{0, "from-ollama.com/library/model.gguf", ""}},
		{"a model that the library lacks is an error and says what to do", "pull mistral", result{1, "", "pull from Hugging Face as org/repo:quant"}},
		{"a name that is none is wrong usage", "pull a/b/c", result{2, "", "is neither org/repo nor org/repo:quant"}},
		{"pull takes a name", "pull", result{2, "", "name the model to pull"}},
		{"show takes a name", "show", result{2, "", "name the model to"}},
		{"rm takes a name", "rm --yes", result{2, "", "name the model to"}},
		{"the built-in model can be shown", "show guide", result{0, "built in", ""}},
		{"the built-in model cannot be removed", "rm --yes guide", result{1, "", "built into the program"}},
		{"a file outside of the models folder cannot be removed", "rm " + tinyModel(t), result{1, "", "there is no model called"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, env, "", strings.Fields(c.args)...)
			if got.code != c.want.code || !strings.Contains(got.out, c.want.out) || !strings.Contains(got.errs, c.want.errs) || c.want.errs == "" && got.errs != "" {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	t.Run("an endpoint that is none is wrong usage", func(t *testing.T) {
		if got := execute(t, map[string]string{"HF_ENDPOINT": "nonsense"}, "", "pull", "org/repo"); got.code != 2 || !strings.Contains(got.errs, "HF_ENDPOINT") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestRestoreListsAndPutsBackTheChats(t *testing.T) {
	data := t.TempDir()
	folder := "--data=" + data
	if got := execute(t, nil, "", "restore", folder); got.code != cli.ExitFailed || !strings.Contains(got.errs, "no backups") {
		t.Errorf("without backups: %+v", got)
	}
	ctx, path := context.Background(), filepath.Join(data, chatsFile)
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	chats := func(do func(*store.Store)) {
		t.Helper()
		s, err := store.Open(ctx, store.Options{Path: path, Ballast: -1})
		if err != nil {
			t.Fatal(err)
		}
		do(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(s *store.Store, id string) {
		t.Helper()
		if _, _, _, err := s.Start(ctx, "me", store.Metadata{ID: id}, store.NewMessage{Role: store.RoleUser, Text: "hello"}, store.NewAnswer{}); err != nil {
			t.Fatal(err)
		}
	}
	chats(func(s *store.Store) {
		ask(s, "before")
		if _, err := s.Backup(ctx); err != nil {
			t.Fatal(err)
		}
		ask(s, "after")
		if got := execute(t, nil, "", "restore", folder, "1"); got.code != cli.ExitRunning {
			t.Errorf("while the chats are in use: %+v", got)
		}
	})
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"without a number it lists", nil, cli.ExitOK, "1       20"},
		{"a number that is none is refused", []string{"one"}, cli.ExitUsage, `"one" is not the number`},
		{"a number without a backup is refused", []string{"2"}, cli.ExitFailed, "backup 2 does not exist"},
		{"a backup is put back", []string{"1"}, cli.ExitOK, "kept as " + path + ".replaced-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, nil, "", append([]string{"restore", folder}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.out+got.errs, c.says) {
				t.Errorf("got %+v, want code %d and %q", got, c.code, c.says)
			}
		})
	}
	chats(func(s *store.Store) {
		if _, err := s.Conversation(ctx, "me", "before"); err != nil {
			t.Error(err)
		}
		if _, err := s.Conversation(ctx, "me", "after"); err == nil {
			t.Error("a chat that is newer than the backup is there")
		}
	})
}

func TestBenchMeasuresAModelOrAShape(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"the built-in model", []string{"-p", "8", "-n", "2", "-r", "1"}, cli.ExitOK, []string{"model    guide", "tok/s, prompt of 8", "% of the memory bandwidth"}},
		{"random weights, as JSON", []string{"--shape", "tiny", "--quant", "q4_k", "-p", "8", "-n", "2", "-r", "1", "--parallel", "2", "--json"}, cli.ExitOK, []string{`"model": "random tiny q4_k"`, `"decode_tok_s":`, `"answers": 2`}},
		{"a shape that there is not", []string{"--shape", "huge"}, cli.ExitFailed, []string{"llama-8b"}},
		{"several lengths of prompt", []string{"-p", "8, 40", "-n", "2", "-r", "1"}, cli.ExitOK, []string{"tok/s, prompt of 8\n", "tok/s, prompt of 40\n"}},
		{"several contexts", []string{"-p", "8", "-n", "2", "-r", "1", "--ctx", "0,40"}, cli.ExitOK, []string{"tok/s after 0 tokens", "tok/s after 40 tokens", "after 32 more"}},
		{"weights in the file", []string{"--device", "cpu", "--no-repack", "-p", "8", "-n", "2", "-r", "1"}, cli.ExitOK, []string{"the weights stay in the model file, which is slower: --no-repack"}},
		{"a context that is no number", []string{"--ctx", "-1"}, cli.ExitUsage, []string{`--ctx "-1" is not a list`}},
		{"a length that is no number", []string{"-p", "8,"}, cli.ExitUsage, []string{`-p "8," is not a list`, "128,512,4096"}},
		{"no rounds", []string{"-r", "0"}, cli.ExitUsage, []string{"at least 1"}},
		{"a model by its name alone", []string{"guide", "-p", "8", "-n", "2", "-r", "1"}, cli.ExitOK, []string{"model    guide"}},
		{"a model that there is not", []string{"nobody/nothing"}, cli.ExitFailed, []string{"there is no model called"}},
		{"a model and a shape", []string{"--model", "guide", "--shape", "tiny"}, cli.ExitUsage, []string{"exclude each other"}},
		{"a model without a flag and a shape", []string{"guide", "--shape", "tiny"}, cli.ExitUsage, []string{"exclude each other"}},
		{"two models", []string{"--model", "guide", "other"}, cli.ExitUsage, []string{"name two models"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, nil, "", append([]string{"bench"}, c.args...)...)
			for _, want := range c.says {
				if got.code != c.code || !strings.Contains(got.out+got.errs, want) {
					t.Errorf("got %+v, want code %d and %q", got, c.code, want)
				}
			}
		})
	}
}

// form writes what an answer is held to into a file.
func form(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "form")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCompletionKnowsCommandsAndFlags(t *testing.T) {
	for shell, want := range map[string][]string{
		"bash": {"complete -o default -F _m40_llm m40-llm", `"serve --device") COMPREPLY=($(compgen -W "auto cpu cuda ref"`, "--keep-alive", " pull ", "--quant"},
		"zsh":  {"#compdef m40-llm", "--keep-alive"},
		"fish": {"complete -c m40-llm -n '__fish_seen_subcommand_from serve' -l keep-alive -r", "-l kv -r -f -a 'f16 auto q8_0 q8_0/q4_0 q4_0 f32'"},
	} {
		t.Run(shell, func(t *testing.T) {
			got := execute(t, nil, "", "completion", shell)
			for _, part := range want {
				if got.code != 0 || !strings.Contains(got.out, part) {
					t.Errorf("code %d, without %q", got.code, part)
				}
			}
			if strings.Contains(got.out, "worker)") || strings.Contains(got.out, "--control") {
				t.Error("it completes the command worker, which is not for people")
			}
		})
	}
	if got := execute(t, nil, "", "completion", "tcsh"); got.code != cli.ExitUsage || !strings.Contains(got.errs, "there is one for bash, zsh, fish") {
		t.Errorf("got %+v", got)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script := execute(t, nil, "", "completion", "bash").out + "\nCOMP_WORDS=(m40-llm serve --ke); COMP_CWORD=2; _m40_llm; echo \"${COMPREPLY[@]}\"\n" +
		"COMP_WORDS=(m40-llm pu); COMP_CWORD=1; _m40_llm; echo \"${COMPREPLY[@]}\"\nCOMP_WORDS=(m40-llm serve --kv f); COMP_CWORD=3; _m40_llm; echo \"${COMPREPLY[@]}\"\n"
	out, err := exec.Command(bash, "-c", script).CombinedOutput()
	if err != nil || string(out) != "--keep-alive\npull\nf16 f32\n" {
		t.Errorf("bash completes %q, %v", out, err)
	}
}

func TestAConfigurationFileSetsFlags(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("device = \"toaster\"\n[run]\nmax-tokens = 2\n")
	if got := execute(t, nil, "", "run", "--config", config, tinyModel(t), "hi"); got.code != cli.ExitUsage || !strings.Contains(got.errs, `--device "toaster" is not one of`) {
		t.Errorf("got %+v", got)
	}
	write("device = \"ref\"\n[run]\nmax-tokens = 2\n")
	if got := execute(t, nil, "", "run", "--config", config, tinyModel(t), "hi"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	write("devise = \"ref\"")
	if got := execute(t, nil, "", "list", "--config", config); got.code != cli.ExitUsage || !strings.Contains(got.errs, "no command has a flag --devise (did you mean device?)") {
		t.Errorf("got %+v", got)
	}
	for _, value := range []string{"soon", "0", "-1m", "10ms"} {
		if got := execute(t, nil, "", "serve", "--addr", ":0", "--keep-alive", value); got.code != cli.ExitUsage || !strings.Contains(got.errs, "--keep-alive") {
			t.Errorf("--keep-alive %s: %+v", value, got)
		}
	}
}
