package commands

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/gguf/gguftest"
)

// childServer is a server in another process.
type childServer struct {
	testServer
	cmd *exec.Cmd
}

// startChild starts the program as a server of its own, which the test may kill.
func startChild(t *testing.T, args ...string) *childServer {
	t.Helper()
	data := t.TempDir()
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--addr", "127.0.0.1:0", "--data", data, "--worker", "never", "--threads", "1"}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "HOME="+data)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	go io.Copy(io.Discard, out)
	s := &childServer{testServer{t: t, url: strings.TrimPrefix(strings.TrimSpace(line), "m40-llm listening on "), data: data}, cmd}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	return s
}

// remote waits until a server has models of others, from as many servers, and the first of them is loaded.
func (s *testServer) remote(servers int) (list []infer.ModelInfo) {
	s.t.Helper()
	eventually(s.t, "models of upstreams", func() bool {
		list = s.status().Remote
		return len(list) > 0 && len(list[0].Upstream.Servers) == servers && list[0].Upstream.Problem == "" && list[0].Upstream.ContextLength > 0
	})
	return list
}

// page returns the page that a server has at path.
func (s *testServer) page(path string) string {
	s.t.Helper()
	response, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// embedderFolder returns a folder with a small embedding model, tiny-embed.
func embedderFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tiny-embed.gguf"), gguftest.TinyBERT(gguftest.BERT{Context: 32}), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// otherEngine returns the address at which a server of this program has OpenAI's routes alone, as another engine has.
func otherEngine(t *testing.T, url string) string {
	t.Helper()
	to, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models", "/openapi.json", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank":
			r.Host = to.Host
			proxy.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// readEvents returns the text, the ids of the tokens and the record of the answer in the events of /v1/generate.
func readEvents(t *testing.T, body string) (texts string, ids []int32, done infer.Done) {
	t.Helper()
	for line := range strings.Lines(body) {
		var e infer.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.Token != nil {
			texts += e.Token.Text
			ids = append(ids, e.Token.ID)
		}
		if e.Done != nil {
			done = *e.Done
			texts += done.Text
		}
	}
	return texts, ids, done
}

func TestAnotherServerOfThisProgramAsAnUpstreamLosesNothing(t *testing.T) {
	far := startChild(t, "--models", embedderFolder(t))
	front := startServer(t, t.TempDir(), "--upstream", far.url+"/v1/", "--model", "guide@"+strings.TrimPrefix(far.url, "http://"))
	model := front.remote(1)[0]
	if model.Name != "guide@upstream" || !model.Upstream.Exact || model.Upstream.ContextLength == 0 || len(model.Upstream.Lacks) != 0 || model.Upstream.Engine != "m40-llm "+strings.TrimPrefix(version, "m40-llm-") {
		t.Fatalf("the model is %+v, %+v", model, model.Upstream)
	}
	generate := func(s *testServer, model string, seed int) string {
		status, body := s.post("/v1/generate", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Tell me a story about a fox."}],"parse_reply":true,"max_tokens":24,"params":{"temperature":1.2,"seed":%d},"alternatives":3,"rows":true}`, model, seed))
		if status != http.StatusOK {
			t.Fatalf("got %d: %s", status, body)
		}
		return body
	}
	for seed := range 3 {
		wantText, wantIDs, want := readEvents(t, generate(&far.testServer, "guide", seed))
		text, ids, done := readEvents(t, generate(front, "guide@upstream", seed))
		if text != wantText || !reflect.DeepEqual(ids, wantIDs) || len(ids) == 0 {
			t.Errorf("seed %d: %q and %q differ", seed, text, wantText)
		}
		if done.Receipt.ModelHash != want.Receipt.ModelHash || done.Receipt.Model != "guide@upstream" || done.Receipt.Params.Seed != int64(seed) || !strings.HasSuffix(done.Receipt.Device, strings.TrimPrefix(far.url, "http://")) {
			t.Errorf("the receipt is %+v, want %+v", done.Receipt, want.Receipt)
		}
	}
	t.Run("the API for programs", func(t *testing.T) {
		for _, request := range []string{
			`/v1/chat/completions {"model":%q,"messages":[{"role":"user","content":"Hi"}],"max_tokens":8,"seed":3,"logprobs":true,"top_logprobs":2}`,
			`/v1/completions {"model":%q,"prompt":"Once upon","max_tokens":8,"seed":3,"logprobs":2,"echo":true}`,
			`/v1/chat/completions {"model":%q,"messages":[{"role":"user","content":"Hi"}],"max_tokens":20,"seed":3,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"enum":["yes","no"]}}}}`,
			`/v1/chat/completions {"model":%q,"messages":[{"role":"user","content":"What is the weather?"}],"max_tokens":60,"seed":3,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"hot":{"type":"boolean"}},"required":["hot"],"additionalProperties":false}}}],"tool_choice":"required"}`,
			`/tokenize {"model":%q,"content":"Hello there","with_pieces":true}`,
			`/v1/render {"model":%q,"messages":[{"role":"user","content":"Hi"}]}`,
			`/v1/messages/count_tokens {"model":%q,"messages":[{"role":"user","content":"Hi"}]}`,
		} {
			path, body, _ := strings.Cut(request, " ")
			_, want := far.post(path, fmt.Sprintf(body, "guide"))
			status, got := front.post(path, fmt.Sprintf(body, "guide@upstream"))
			if a, b := withoutNames(t, got), withoutNames(t, want); status != http.StatusOK || a != b {
				t.Errorf("%s: %d %s\nwant %s", request, status, a, b)
			}
		}
	})
	t.Run("new chats begin with the model of --model", func(t *testing.T) {
		for server, want := range map[*testServer]string{front: `data-preferred="guide@upstream"`, &far.testServer: `data-preferred="guide"`} {
			if page := server.page("/"); !strings.Contains(page, want) {
				t.Errorf("the page has no %s", want)
			}
		}
	})
	t.Run("a chat, and a client that goes", func(t *testing.T) {
		c := front.chat()
		c.do("send", map[string]any{"text": "Tell me a very long story.", "model": "guide@upstream", "settings": map[string]any{"temperature": 0, "max_tokens": 900}})
		c.until("some words are there", func() bool { return c.tokens >= 3 })
		c.do("stop", nil)
		c.finish()
		if c.state != "stopped" || c.text == "" {
			t.Errorf("the answer is %s: %q", c.state, c.text)
		}
		eventually(t, "the upstream stops too", func() bool { return far.status().Running == 0 && far.status().Queued == 0 })
		if up := front.status().Upstreams[0]; up.Running != 0 || up.Failed != 0 {
			t.Errorf("the upstream is %+v", up)
		}
	})
	t.Run("embeddings", func(t *testing.T) { embedThere(t, front, far, true) })
}

// embedThere checks that all routes for embeddings give what the upstream gives; exactly if it is asked by the
// engine's own API.
func embedThere(t *testing.T, front *testServer, far *childServer, exact bool) {
	t.Helper()
	for _, request := range []string{
		`/v1/embeddings {"model":"tiny-embed","input":["one text","another"]}`,
		`/v1/embeddings {"model":"tiny-embed","input":"one text","dimensions":8,"encoding_format":"base64"}`,
		`/v1/embeddings {"model":"tiny-embed","input":[[5,6,7],[8]]}`,
		`/embedding {"model":"tiny-embed","content":"one text"}`,
		`/api/embed {"model":"tiny-embed","input":["one text","another"]}`,
		`/embeddings {"model":"tiny-embed","content":"one text","embd_normalize":-1}`,
		`/api/embeddings {"model":"tiny-embed","prompt":"one text"}`,
		`/api/embed {"model":"tiny-embed","input":"` + strings.Repeat("long ", 40) + `"}`,
	} {
		if own := strings.Contains(request, "-1") || strings.Contains(request, "prompt") || strings.Contains(request, "long"); own && !exact {
			continue // other engines do not say what they computed, or cut texts
		}
		path, body, _ := strings.Cut(request, " ")
		_, want := far.post(path, body)
		status, got := front.post(path, body)
		if a, b := numbersOf(t, got), numbersOf(t, want); status != http.StatusOK || !slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || !exact && math.Abs(x-y) < 1e-6 }) || len(a) < 9 {
			t.Errorf("%s: %d %.200s\nwant %.200s", request, status, got, want)
		}
	}
	if status, body := front.post("/v1/embeddings", `{"model":"`+front.status().Remote[0].Name+`","input":"x"}`); status != http.StatusBadRequest || !strings.Contains(body, "not_supported") {
		t.Errorf("the embedding of a text by a model that writes: %d %s", status, body)
	}
	status, body := front.post("/v1/chat/completions", `{"model":"tiny-embed","messages":[{"role":"user","content":"Hi"}]}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "not_supported") {
		t.Errorf("a question to a model that embeds: %d %s", status, body)
	}
	if up := front.status().Upstreams[0]; up.Problem != "" {
		t.Errorf("after that, the server is taken for broken: %+v", up)
	}
	if page := front.page("/"); strings.Contains(page, `value="tiny-embed"`) || !strings.Contains(page, `value="`+front.status().Remote[0].Name+`"`) {
		t.Error("the menu of models has one that cannot chat")
	}
}

// numbersOf returns the numbers of a response with embeddings, those in base64 included, without durations.
func numbersOf(t *testing.T, body string) (list []float64) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if !strings.HasSuffix(name, "_duration") {
					visit(v[name])
				}
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		case float64:
			list = append(list, v)
		case string:
			var vector infer.Vector
			if json.Unmarshal([]byte(strconv.Quote(v)), &vector) == nil {
				for _, x := range vector {
					list = append(list, float64(x))
				}
			}
		}
	}
	visit(value)
	return list
}

func TestEmbeddingsOfAnEngineWithOpenAIsRoutes(t *testing.T) {
	far := startChild(t, "--models", embedderFolder(t))
	eventually(t, "the model there is loaded", func() bool { return far.status().State == infer.StateReady })
	front := startServer(t, t.TempDir(), "--upstream", otherEngine(t, far.url))
	if m := front.remote(1)[0].Upstream; m.Exact {
		t.Fatalf("the upstream is taken for another one of this program: %+v", m)
	}
	embedThere(t, front, far, false)
}

func TestAnUpstreamRanksAsItDoesWhenItIsAskedItself(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tiny-ranker.gguf"), gguftest.TinyBERT(gguftest.BERT{Context: 32, Ranks: true}), 0o600); err != nil {
		t.Fatal(err)
	}
	far := startChild(t, "--models", dir)
	eventually(t, "the model there is loaded", func() bool { return far.status().State == infer.StateReady })
	const request = `{"model":"tiny-ranker","query":"what?","documents":["one text","another","the third"],"return_documents":true`
	_, want := far.post("/v1/rerank", request+`}`)
	for name, url := range map[string]string{"another m40-llm": far.url, "an engine with OpenAI's routes": otherEngine(t, far.url)} {
		t.Run(name, func(t *testing.T) {
			front := startServer(t, t.TempDir(), "--upstream", url)
			var ranker *infer.ModelInfo
			eventually(t, "the model of the upstream", func() bool {
				s := front.status()
				ranker = s.RemoteModel("tiny-ranker")
				return ranker != nil
			})
			exact := ranker.Upstream.Exact
			if !ranker.Ranks || exact != (url == far.url) {
				t.Errorf("the model is %+v", ranker)
			}
			if status, got := front.post("/v1/rerank", request+`}`); status != http.StatusOK || withoutNames(t, got) != withoutNames(t, want) {
				t.Errorf("got %d %s, want %s", status, got, want)
			}
			status, got := front.post("/v1/rerank", request+`,"normalize":true}`)
			if exact && status != http.StatusOK || !exact && (status != http.StatusBadRequest || !strings.Contains(got, "leave normalize out")) {
				t.Errorf("probabilities: %d %s", status, got)
			}
			if status, got := front.post("/v1/rerank", strings.Replace(request, "the third", strings.Repeat("long ", 40), 1)+`}`); status != http.StatusBadRequest || !strings.Contains(got, "maximum context length is 32 tokens") || exact && !strings.Contains(got, "document 3 with the query has") {
				t.Errorf("a long document: %d %s", status, got)
			}
			if page := front.page("/"); strings.Contains(page, `value="tiny-ranker"`) {
				t.Error("the menu of models has a ranker")
			}
		})
	}
}

// withoutNames returns a JSON body without what names the server, the request and the time.
func withoutNames(t *testing.T, body string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var clean func(any)
	clean = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"id", "created", "model", "timings", "usage", "system_fingerprint"} {
				if _, isNumber := v[name].(float64); name != "id" || !isNumber { // a token's id stays
					delete(v, name)
				}
			}
			for _, inner := range v {
				clean(inner)
			}
		case []any:
			for _, inner := range v {
				clean(inner)
			}
		}
	}
	clean(value)
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOfTwoUpstreamsOneIsKilledUnderLoad(t *testing.T) {
	a, b := startChild(t), startChild(t)
	front := startServer(t, t.TempDir(), "--upstream", a.url, "--upstream", b.url)
	front.remote(2)
	const load = 12
	type result struct {
		status int
		body   string
	}
	results := make(chan result, load)
	for i := range load {
		go func() {
			status, body := front.post("/v1/chat/completions", fmt.Sprintf(`{"model":"guide@upstream","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"Question %d: tell me a story."}]}`, i))
			results <- result{status, body}
		}()
	}
	eventually(t, "both write", func() bool {
		list := front.status().Upstreams
		return list[0].Running > 1 && list[1].Running > 1
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range load {
		r := <-results
		started := strings.Contains(r.body, `"content":"`) && strings.Count(r.body, `"content":""`) != strings.Count(r.body, `"content":"`)
		if r.status != http.StatusOK || !started {
			t.Errorf("a request was lost before its first token: %d %s", r.status, r.body)
		}
	}
	eventually(t, "the end is noticed", func() bool { return front.status().Upstreams[0].Problem != "" })
	eventually(t, "the model of this machine is loaded", func() bool { return front.status().State == infer.StateReady })
	var health struct{ Upstreams struct{ Ready, Failing int } }
	if front.get("/health", &health); health.Upstreams.Ready != 1 || health.Upstreams.Failing != 1 {
		t.Errorf("/health has %+v", health)
	}
}

func TestUpstreamsAndTheirKeysAreReadAndNotShown(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte("http://127.0.0.1:9 sk-very-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		args string
		says string
	}{
		{"an address without a scheme", nil, "--upstream gpu-box:8000", "such as http://gpu-box:8000"},
		{"one twice", nil, "--upstream http://a --upstream http://a/v1", "given twice"},
		{"a key of another server", nil, "--upstream http://a --upstream-keys " + keys, "is no --upstream"},
		{"one key for two", map[string]string{"M40_LLM_UPSTREAM_KEY": "sk-very-secret"}, "--upstream http://a --upstream http://b", "use --upstream-keys"},
		{"a file that is not there", nil, "--upstream http://a --upstream-keys " + dir + "/none", "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, c.env, "", strings.Fields("serve --addr 127.0.0.1:0 --worker never "+c.args)...)
			if got.code != cli.ExitUsage || !strings.Contains(got.errs, c.says) || strings.Contains(got.errs, "secret") {
				t.Errorf("code %d, %q", got.code, got.errs)
			}
		})
	}
}
