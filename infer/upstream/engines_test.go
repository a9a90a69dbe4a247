package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
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

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	chatsetting "m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/guide"
	"m40-llm/store"
	"m40-llm/world/worldtest"
)

// realEngine is another program with a model that is called m, which a test starts, kills and starts again at the same
// address.
type realEngine struct {
	name    string // in docs/compatibility.md
	address string
	command func() *exec.Cmd
	within  time.Duration // until it is ready
	process *worldtest.Process
}

// startLlamaServer starts the program that M40_LLM_LLAMA_SERVER names, with the built-in model. No package has it, so the
// test is skipped without. Its threads do not spin, so that it runs alongside other tests.
func startLlamaServer(t testing.TB) *realEngine {
	t.Helper()
	path := os.Getenv("M40_LLM_LLAMA_SERVER")
	if path == "" {
		t.Skip("M40_LLM_LLAMA_SERVER is not set: the path of a llama-server")
	}
	model := filepath.Join(t.TempDir(), "guide.gguf")
	if err := os.WriteFile(model, guide.Model, 0o600); err != nil {
		t.Fatal(err)
	}
	return startEngine(t, "llama-server", 2*time.Minute, func(host, port string) *exec.Cmd {
		return exec.Command(path, "-m", model, "--alias", "m", "-c", "8192", "-np", "4", "-t", "2", "--poll", "0", "--host", host, "--port", port)
	})
}

// startVLLM starts vLLM on the CPU by the recipe of docs/upstreams.md.
func startVLLM(t testing.TB) *realEngine {
	t.Helper()
	recipe := worldtest.VLLM(t, "m")
	return startEngine(t, "vLLM", worldtest.StartOfVLLM, func(_, port string) *exec.Cmd { return recipe(port) })
}

func startEngine(t testing.TB, name string, within time.Duration, command func(host, port string) *exec.Cmd) *realEngine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	e := &realEngine{name: name, address: l.Addr().String(), within: within, command: func() *exec.Cmd { return command(host, port) }}
	e.start(t)
	return e
}

// start starts the engine for as long as the test lasts, and waits until it is ready.
func (e *realEngine) start(t testing.TB) {
	t.Helper()
	e.process = worldtest.Start(t, e.command(), "http://"+e.address+"/health", e.within)
}

// router returns a router to the engine alone.
func (e *realEngine) router(t testing.TB) *Router {
	t.Helper()
	a, err := ParseAddress("http://" + e.address)
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{Local: &localEngine{}, Servers: []Address{a}, CheckEvery: 20 * time.Millisecond, Silence: hang, Stall: hang,
		Pauses: []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}})
	t.Cleanup(func() { r.Close() })
	eventually(t, "the model is listed", func() bool { return len(r.Status().Remote) > 0 })
	eventually(t, "the engine says its version", func() bool { return strings.Contains(r.Status().Upstreams[0].Engine, " ") })
	return r
}

// post sends a body, and returns the status and the answer.
func (e *realEngine) post(t testing.TB, path string, body map[string]any) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+e.address+path, bytes.NewReader(must(json.Marshal(body))))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true // it closes a connection after some requests without saying so
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// try runs a test with a router to the engine, and writes a row of docs/compatibility.md.
func (e *realEngine) try(t *testing.T, r *Router, feature string, test func(t *testing.T, e *realEngine, r *Router)) {
	t.Run(feature, func(t *testing.T) {
		fixtures.ReportAtEnd(t, e.name, r.Status().Upstreams[0].Engine, "behind --upstream: "+feature)
		test(t, e, r)
	})
}

// bodiesForLlama are fields of requests by what is tried: values at the limits of numbers, and combinations that are refused.
func bodiesForLlama() map[string]map[string]any {
	list := map[string]map[string]any{}
	numbers := []float64{-2, -1, 0, 0.5, 1, 2, 3, 100, 2048}
	for _, field := range []string{"temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "min_keep", "repeat_penalty", "repeat_last_n",
		"presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "seed"} {
		for _, v := range numbers {
			if v == math.Trunc(v) || !slices.Contains([]string{"top_k", "min_keep", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "seed"}, field) {
				list[fmt.Sprint(field, " ", v)] = map[string]any{field: v}
			}
		}
		list[field+" as a text"] = map[string]any{field: "many"}
	}
	tools := json.RawMessage(oneTool)
	maps.Copy(list, map[string]map[string]any{
		"the largest seed":                   {"seed": math.MaxUint32},
		"no breakers":                        {"dry_sequence_breakers": []string{}},
		"an empty breaker":                   {"dry_sequence_breakers": []string{""}},
		"breakers as a text":                 {"dry_sequence_breakers": "x"},
		"all stages":                         {"samplers": llamaSamplers},
		"a grammar":                          {"grammar": `root ::= "a"`},
		"a grammar and a format":             {"grammar": `root ::= "a"`, "response_format": map[string]any{"type": "json_object"}},
		"a format":                           {"response_format": map[string]any{"type": "json_object"}},
		"a bias":                             {"logit_bias": map[string]any{"5": -100}},
		"ignore_eos":                         {"ignore_eos": true},
		"tools":                              {"tools": tools},
		"tools with a grammar":               {"tools": tools, "grammar": `root ::= "a"`},
		"tools with log-probabilities":       {"tools": tools, "logprobs": true},
		"a tool that must be called":         {"tools": tools, "tool_choice": "required"},
		"log-probabilities":                  {"logprobs": true, "top_logprobs": 5},
		"likeliest tokens without the token": {"top_logprobs": 5},
		"an answer to continue":              {"messages": []any{map[string]any{"role": "user", "content": "Hi"}, map[string]any{"role": "assistant", "content": "He"}}},
		"an answer to continue without thinking": {"messages": []any{map[string]any{"role": "user", "content": "Hi"}, map[string]any{"role": "assistant", "content": "He"}},
			"chat_template_kwargs": map[string]any{"enable_thinking": false}},
		"thinking as a text": {"chat_template_kwargs": map[string]any{"enable_thinking": "low"}},
	})
	return list
}

func TestTheStandInForLlamaServerIsAsStrictAsLlamaServer(t *testing.T) {
	real := startLlamaServer(t)
	bodies := bodiesForLlama()
	for _, name := range slices.Sorted(keys(bodies)) {
		body := map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": "Hi"}}, "max_tokens": 1, "stream": true}
		maps.Copy(body, bodies[name])
		var plain map[string]any // as the stand-in reads it
		if err := json.Unmarshal(must(json.Marshal(body)), &plain); err != nil {
			t.Fatal(err)
		}
		why := refusedByLlama(plain)
		status, text := real.post(t, "/v1/chat/completions", body)
		refuses := status != http.StatusOK || strings.Contains(text, `data: {"error"`)
		if refuses != (why != "") && name != "an answer to continue" { // only versions of 2025 refuse that
			t.Errorf("%s: llama-server answers %d %.300s; the stand-in says %q", name, status, text, why)
		}
	}

	var is, stands struct {
		Defaults struct {
			Params map[string]any `json:"params"`
		} `json:"default_generation_settings"`
		Caps  map[string]any `json:"chat_template_caps"`
		Build string         `json:"build_info"`
	}
	got, err := http.Get("http://" + real.address + "/props")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if err := json.NewDecoder(got.Body).Decode(&is); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(llamaServer(true).routes["/props"]), &stands); err != nil {
		t.Fatal(err)
	}
	for field, of := range map[string][2]map[string]any{"params": {is.Defaults.Params, stands.Defaults.Params}, "chat_template_caps": {is.Caps, stands.Caps}} {
		for name := range of[1] {
			if _, there := of[0][name]; !there {
				t.Errorf("/props of llama-server has no %s.%s, as that of the stand-in: %v", field, name, slices.Sorted(keys(of[0])))
			}
		}
	}
	report := "as strict as the stand-in of the tests"
	if t.Failed() {
		report = "fails: the stand-in of the tests differs"
	}
	fixtures.Report("llama-server", is.Build, fmt.Sprintf("%d requests with settings at their limits", len(bodies)), report)
}

func TestTheServerIsInFrontOfLlamaServer(t *testing.T) { isInFrontOf(t, startLlamaServer(t)) }

func TestTheServerIsInFrontOfVLLM(t *testing.T) { isInFrontOf(t, startVLLM(t)) }

func isInFrontOf(t *testing.T, engine *realEngine) {
	r := engine.router(t)
	engine.try(t, r, "answers with each setting of the page at its least, default and greatest", takesEverySettingOfThePage)
	server := handlerstest.Server(t, r)
	for _, api := range apis() {
		engine.try(t, r, "the routes of "+api, func(t *testing.T, _ *realEngine, _ *Router) { routesWork(t, server, api, true) })
	}
	engine.try(t, r, "16 streams; kill -9 among them; started again", isKilledWhileItWritesAndStartedAgain)
}

// takesEverySettingOfThePage asks questions by the path of the page, eight at a time. An answer has a few tokens in any
// case: either the setting that is tried limits it, or this test does.
func takesEverySettingOfThePage(t *testing.T, _ *realEngine, r *Router) {
	chats := live.New(r, live.Options{})
	defer chats.Close()
	ask := func(name string, settings chatsetting.Settings, raw bool) {
		c, err := chats.Start(t.Context(), access.Local, live.Question{Text: "Hi", Settings: settings, Opening: store.Opening{Model: "m", Raw: raw}}, true)
		if err != nil {
			t.Error(err)
			return
		}
		got := lastAnswer(t, c)
		if failure := got.Answer.Error; failure != nil && settings.MustCall == 1 && !raw && failure.Param == "tool_choice" {
			return // refused here, by name
		}
		if failure := got.Answer.Error; failure != nil && settings.OutputFormat.Type == chatsetting.OutputGrammar && !raw && failure.Param == "grammar" {
			return
		}
		if got.Answer.State != live.Done || got.Answer.Error != nil {
			t.Errorf("%s, raw %v: the answer is %s: %v", name, raw, got.Answer.State, got.Answer.Error)
		}
	}
	all := pageSettings()
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, 8)
	for _, name := range slices.Sorted(keys(all)) {
		settings := all[name]
		if settings.Stop == nil && settings.MaxTokens != chatsetting.Default().MaxTokens {
			settings.Stop = []string{"e", "a", "o", "i"}
		} else {
			settings.MaxTokens = 4
		}
		for _, raw := range []bool{false, true} {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				ask(name, settings, raw)
			})
		}
	}
}

// isKilledWhileItWritesAndStartedAgain ends the engine while it answers 16 requests.
func isKilledWhileItWritesAndStartedAgain(t *testing.T, engine *realEngine, r *Router) {
	const streams = 16
	ask := func(i int) written {
		asked := question(fmt.Sprint("What is lamp ", i, "?"))
		asked.MaxTokens = 24
		return write(t, r, asked)
	}
	all := func(check func(i int, got written)) {
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() { check(i, ask(i)) })
		}
		wg.Wait()
	}
	complete := func(i int, got written) {
		if got.err != nil || got.done == nil || got.text == "" {
			t.Errorf("stream %d: %q, %v", i, got.text, got.err)
		}
	}
	all(complete)
	name := r.Status().Upstreams[0].Engine

	var wg sync.WaitGroup
	writing := make(chan int, streams)
	for i := range streams {
		wg.Go(func() {
			begin := sync.OnceFunc(func() { writing <- i })
			asked, text := question(fmt.Sprint("Tell me of lamp ", i)), ""
			asked.IgnoreEOS, asked.MaxTokens = true, 500
			for e, err := range r.Generate(t.Context(), asked) {
				if err != nil {
					if known := fault.Of(fault.CodeInternal, err); known.Code != fault.CodeUpstream {
						t.Errorf("stream %d ended with %s: %v, behind %q", i, known.Code, err, text)
					}
					return
				}
				if e.Token != nil {
					text += e.Token.Text
					begin()
				}
			}
		})
	}
	for range 4 { // which llama-server writes at once
		<-writing
	}
	engine.process.Kill()
	wg.Wait()
	if code, text := ask(0).code(); code != fault.CodeUpstream || !strings.Contains(text, "cannot be reached") {
		t.Errorf("while it is dead, an answer ends with %s %s", code, text)
	}
	engine.start(t)
	all(complete)
	eventually(t, "it is called as before", func() bool { return r.Status().Upstreams[0].Engine == name })
}
