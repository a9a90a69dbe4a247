package commands

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
)

// threeModels returns a folder with two models that write, llama and phi, and one that embeds, bert.
func threeModels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{
		"llama": fixtures.Path(t, "logits", "llama", "f32.gguf"),
		"phi":   fixtures.Path(t, "logits", "phi3", "f32.gguf"),
		"bert":  fixtures.Path(t, "embeddings", "bert", "f32.gguf"),
	} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".gguf"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// result returns the part of a response that depends on the model and the seed alone: an answer's choices, or the embeddings.
func (s *testServer) result(model string, seed, tokens int) (string, error) {
	path, body := "/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":[5,9,14],"seed":%d,"temperature":1.5,"max_tokens":%d,"ignore_eos":true}`, model, seed, tokens)
	if model == "bert" {
		path, body = "/v1/embeddings", fmt.Sprintf(`{"model":"bert","input":[[2,%d,3]]}`, 5+seed)
	}
	response, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Choices, Data json.RawMessage
		Error         *struct{ Message string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.Error != nil {
		return "", fmt.Errorf("status %d: %s", response.StatusCode, answer.Error.Message)
	}
	return string(answer.Choices) + string(answer.Data), nil
}

// workerOf returns the process that has a model.
func workerOf(t *testing.T, model string) int {
	t.Helper()
	for _, pid := range workersOf(t, os.Getpid()) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if slices.Contains(strings.Split(string(args), "\x00"), "--load="+model) {
			return pid
		}
	}
	t.Fatalf("no worker has %s", model)
	return 0
}

func TestModels_ThreeAnswerManyClientsAtOnceAsAlone(t *testing.T) {
	t.Run("on the CPU", func(t *testing.T) { threeAnswer(t) })
	if fixtures.Torture() { // takes the emulation minutes
		t.Run("on an emulated GPU", func(t *testing.T) {
			t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
			threeAnswer(t, "--device", "cuda")
		})
	}
}

// threeAnswer asks three models on the devices of flags 200 times, by four clients.
func threeAnswer(t *testing.T, flags ...string) {
	server := startServer(t, t.TempDir(), append(flags, "--models", threeModels(t), "--model", "llama")...)
	const seeds, tokens = 5, 8
	names := []string{"llama", "phi", "bert"}
	alone := map[string]string{}
	for _, model := range names {
		for seed := range seeds {
			got, err := server.result(model, seed, tokens)
			if err != nil {
				t.Fatal(model, err)
			}
			alone[fmt.Sprint(model, seed)] = got
		}
	}
	before := workersOf(t, os.Getpid())
	slices.Sort(before)
	if len(before) != len(names) {
		t.Fatalf("%d workers, want one for each of %d models", len(before), len(names))
	}
	const requests, clients = 200, 4
	var asked sync.WaitGroup
	for client := range clients {
		asked.Go(func() {
			for i := client; i < requests; i += clients {
				model, seed := names[(i/clients)%len(names)], (i*7)%seeds
				if got, err := server.result(model, seed, tokens); err != nil || got != alone[fmt.Sprint(model, seed)] {
					t.Errorf("request %d: %s with seed %d gives %.200s, %v; alone %.200s", i, model, seed, got, err, alone[fmt.Sprint(model, seed)])
				}
			}
		})
	}
	asked.Wait()
	after := workersOf(t, os.Getpid())
	slices.Sort(after)
	if !slices.Equal(after, before) {
		t.Errorf("workers %v at the end, want %v: no model was loaded again", after, before)
	}
	status := server.status()
	if len(status.Models) != len(names) || status.Evictions != 0 {
		t.Errorf("%d models are loaded and %d were evicted, want %d and none", len(status.Models), status.Evictions, len(names))
	}
	for _, s := range status.Models {
		planned := int64(0)
		for _, use := range s.Memory {
			planned += use.Cache
		}
		if s.Cache.Used > planned || planned == 0 {
			t.Errorf("the cache of %s has %d bytes, and %d are planned", s.Model.Name, s.Cache.Used, planned)
		}
	}
	eventually(t, "the models are within the memory of their devices", func() bool {
		devices := server.status().Devices
		return len(devices) > 0 && devices[0].Taken > 0 && !slices.ContainsFunc(devices, func(d infer.Memory) bool { return d.Taken > d.Total })
	})
	var ps struct{ Models []struct{ Name string } }
	if server.get("/api/ps", &ps); len(ps.Models) != len(names) {
		t.Errorf("/api/ps lists %v, want %d models", ps.Models, len(names))
	}
}

func TestModels_ThreeAnswerAtOnceOnAnEmulatedGPUAsAlone(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	models := threeModels(t)
	if err := os.Remove(filepath.Join(models, "phi.gguf")); err != nil {
		t.Fatal(err)
	}
	ranker, err := os.ReadFile(fixtures.Path(t, "rerank", "bert_cross_encoder", "f32.gguf"))
	if err == nil {
		err = os.WriteFile(filepath.Join(models, "ranker.gguf"), ranker, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := startServer(t, t.TempDir(), "--models", models, "--model", "llama", "--device", "cuda", "--parallel", "2")
	ask := func(model string, seed int) (string, error) {
		if model != "ranker" {
			return server.result(model, seed, 4)
		}
		status, body := server.post("/v1/rerank", fmt.Sprintf(`{"model":"ranker","query":"which %d?","documents":["one text","another line"]}`, seed))
		var list struct{ Results json.RawMessage }
		if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK {
			return "", fmt.Errorf("status %d, %v: %s", status, err, body)
		}
		return string(list.Results), nil
	}
	names := []string{"llama", "bert", "ranker"}
	const seeds = 2
	alone := map[string]string{}
	for _, model := range names {
		for seed := range seeds {
			if alone[fmt.Sprint(model, seed)], err = ask(model, seed); err != nil {
				t.Fatal(model, err)
			}
		}
	}
	var asked sync.WaitGroup
	for _, model := range names {
		for seed := range seeds {
			asked.Go(func() {
				if got, err := ask(model, seed); err != nil || got != alone[fmt.Sprint(model, seed)] {
					t.Errorf("%s with seed %d gives %.200s, %v; alone %.200s", model, seed, got, err, alone[fmt.Sprint(model, seed)])
				}
			})
		}
	}
	asked.Wait()
	eventually(t, "three models are on the GPU, within its memory", func() bool {
		s := server.status()
		on := 0
		for _, one := range s.Models {
			if one.Device.Kind == "cuda" && len(one.Memory) == 1 {
				on++
			}
		}
		return on == len(names) && s.Evictions == 0 && len(s.Devices) == 2 && s.Devices[0].Taken > 0 && s.Devices[0].Taken <= s.Devices[0].Total
	})
}

// divergences returns the divergence of each token of a prompt by two models, and the names of those that were unloaded meanwhile.
func (s *testServer) divergences(t *testing.T, model, against string) (kl []float64, unloaded []string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"against":%q,"tokens":[5,9,14,20,31,42,7],"prompt_logprob":true,"max_tokens":0}`, model, against)
	response, err := http.Post(s.url+"/v1/generate", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		var e struct {
			infer.Event
			Error *struct{ Message string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Error != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if e.Loading != nil && e.Loading.InPlaceOf != "" && !slices.Contains(unloaded, e.Loading.InPlaceOf) {
			unloaded = append(unloaded, e.Loading.InPlaceOf)
		}
		if e.Token != nil && e.Token.Compared != nil {
			kl = append(kl, e.Token.Compared.KL)
		}
	}
	return kl, unloaded
}

func TestModels_AreComparedWithoutALoadWhereBothFit(t *testing.T) {
	models := threeModels(t)
	half, err := os.ReadFile(fixtures.Path(t, "logits", "llama", "f16.gguf"))
	if err == nil {
		err = os.WriteFile(filepath.Join(models, "half.gguf"), half, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	alone := startServer(t, t.TempDir(), "--models", models, "--model", "llama", "--models-max", "1")
	want, unloaded := alone.divergences(t, "llama", "half")
	if len(want) != 6 || want[5] <= 0 {
		t.Fatalf("the divergences are %v, want 6 above 0", want)
	}
	if !slices.Equal(unloaded, []string{"llama"}) || alone.status().Evictions != 1 {
		t.Errorf("with one model at a time %v are unloaded, in %d evictions; want llama", unloaded, alone.status().Evictions)
	}
	alone.stop()
	both := startServer(t, t.TempDir(), "--models", models, "--model", "llama")
	if _, err := both.result("bert", 1, 0); err != nil {
		t.Fatal(err)
	}
	var workers []int
	for range 3 {
		if got, unloaded := both.divergences(t, "llama", "half"); !slices.Equal(got, want) || unloaded != nil {
			t.Errorf("beside each other: %v, and %v are unloaded; want %v and none", got, unloaded, want)
		}
		now := workersOf(t, os.Getpid())
		slices.Sort(now)
		if workers != nil && !slices.Equal(now, workers) {
			t.Errorf("workers %v, want %v still", now, workers)
		}
		workers = now
	}
	if s := both.status(); len(s.Models) != 3 || s.Evictions != 0 {
		t.Errorf("%d models are loaded after %d evictions, want 3 and none", len(s.Models), s.Evictions)
	}
}

func TestModels_TheEndOfAWorkerLeavesTheOthersAlone(t *testing.T) {
	server := startServer(t, t.TempDir(), "--models", threeModels(t), "--model", "llama", "--device", "test")
	for _, model := range []string{"llama", "phi"} { // the device takes its time for each step
		if _, err := server.result(model, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	want, err := server.result("phi", 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	got, failed := make(chan string, 1), make(chan error, 1)
	go func() {
		text, err := server.result("phi", 1, 100)
		got <- text
		failed <- err
	}()
	eventually(t, "phi answers", func() bool {
		s := server.status()
		one := s.Of("phi")
		return one != nil && one.Running == 1
	})
	old, other := workerOf(t, "llama"), workerOf(t, "phi")
	syscall.Kill(old, syscall.SIGKILL)
	if text, err := <-got, <-failed; err != nil || text != want {
		t.Errorf("phi gives %.300s, %v; want %.300s", text, err, want)
	}
	eventually(t, "llama is back", func() bool {
		s := server.status()
		one := s.Of("llama")
		return one != nil && one.State == infer.StateReady
	})
	if _, err := server.result("llama", 1, 1); err != nil {
		t.Error(err)
	}
	if now := workerOf(t, "phi"); now != other {
		t.Errorf("phi has worker %d, want %d still", now, other)
	}
}

func TestModels_MemoryThatIsRefusedToALoadUnloadsTheIdleModelUsedLeastRecently(t *testing.T) {
	refuse := filepath.Join(t.TempDir(), "refuse")
	t.Setenv(refuseVariable, refuse)
	server := startServer(t, t.TempDir(), "--models", threeModels(t), "--model", "llama", "--device", "test")
	for _, model := range []string{"llama", "phi"} {
		if _, err := server.result(model, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	phi := workerOf(t, "phi")
	if err := os.WriteFile(refuse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.result("bert", 1, 0); err != nil {
		t.Fatalf("the load that memory is refused to once: %v", err)
	}
	if _, err := os.Stat(refuse); err == nil {
		t.Error("no memory was refused")
	}
	var s infer.Status
	defer func() { // for who reads that it waits in vain
		if t.Failed() {
			t.Logf("the status is %+v", s)
		}
	}()
	eventually(t, "the status of bert says that llama was unloaded for it", func() bool {
		s = server.status()
		one := s.Of("bert")
		return one != nil && strings.Contains(one.Notice, "memory ran out while the model was loaded, so llama was unloaded") && s.Of("llama") == nil && s.Evictions == 1
	})
	if got := workerOf(t, "phi"); got != phi {
		t.Errorf("phi has worker %d, want %d still", got, phi)
	}
	if err := os.WriteFile(refuse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"phi", "bert"} { // none of them can be unloaded
		if status, body := server.post("/v1/models/pin", fmt.Sprintf(`{"model":%q}`, model)); status != http.StatusOK {
			t.Fatal(body)
		}
	}
	if _, err := server.result("llama", 1, 1); err != nil {
		t.Fatalf("a load that is tried with less memory: %v", err)
	}
	eventually(t, "the status of llama says that memory ran out", func() bool {
		s = server.status()
		one := s.Of("llama")
		return one != nil && strings.Contains(one.Device.Notice, "ran out while the model was loaded") && len(s.Models) == 3
	})
}

func TestModels_ThatDoNotFitAreRefusedWithFigures(t *testing.T) {
	server := startServer(t, t.TempDir(), "--models", threeModels(t), "--model", "guide", "--memory", "300kB")
	for model, says := range map[string]string{"guide": "300 kB", "phi": "--memory allows all models together 300 kB"} {
		status, body := server.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"x","max_tokens":1}`, model))
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "need") || !strings.Contains(body, says) {
			t.Errorf("%s: status %d, %s; want 503 and %q", model, status, body, says)
		}
	}
}

func TestModels_AreLoadedUnloadedAndPinned(t *testing.T) {
	server := startServer(t, t.TempDir(), "--models", threeModels(t), "--model", "llama", "--models-max", "2")
	step := func(what, model, want string) {
		t.Helper()
		if status, body := server.post("/v1/models/"+what, fmt.Sprintf(`{"model":%q}`, model)); status != http.StatusOK {
			t.Fatalf("%s %s: status %d, %s", what, model, status, body)
		}
		loaded := ""
		eventually(t, fmt.Sprintf("%s are loaded after %s %s", want, what, model), func() bool {
			var list []string
			for _, s := range server.status().Models {
				if s.State == infer.StateReady {
					list = append(list, s.Model.Name)
				}
			}
			slices.Sort(list)
			loaded = strings.Join(list, " ")
			return loaded == want
		})
	}
	step("pin", "llama", "llama")
	step("load", "phi", "llama phi")
	step("load", "bert", "bert llama") // llama was used before phi, and is pinned
	step("unpin", "llama", "bert llama")
	step("load", "phi", "bert phi")
	ask := func(method, path, form string) *http.Response {
		t.Helper()
		r, err := http.NewRequest(method, server.url+path, strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Origin", server.url)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	page := func(want, lacks string) {
		t.Helper()
		response := ask(http.MethodGet, "/models?show=phi", "")
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(body), want) || strings.Contains(string(body), lacks) {
			t.Errorf("the page of phi, %v, has %q: %v, and %q: %v", err, want, strings.Contains(string(body), want), lacks, strings.Contains(string(body), lacks))
		}
	}
	press := func(do string) {
		t.Helper()
		response := ask(http.MethodPost, "/models/memory", "name=phi&do="+do)
		response.Body.Close()
		if response.StatusCode != http.StatusOK { // of the page to which it leads
			t.Errorf("%s: status %d", do, response.StatusCode)
		}
	}
	page(`value="pin"`, `value="load"`)
	press("pin")
	page(`value="unpin"`, `value="pin"`)
	press("unload")
	page(`value="load"`, `value="unload"`)
	press("load")
	eventually(t, "phi is loaded", func() bool {
		s := server.status()
		one := s.Of("phi")
		return one != nil && one.State == infer.StateReady
	})
	page("of weights, up to", `value="load"`)
	step("unload", "phi", "bert")
	if n := server.status().Evictions; n != 2 {
		t.Errorf("%d evictions, want 2", n)
	}
	if status, body := server.post("/api/embed", `{"model":"bert","input":"x","keep_alive":0}`); status != http.StatusOK {
		t.Errorf("status %d: %s", status, body)
	}
	eventually(t, "the embedder is unloaded, as keep_alive says", func() bool { return len(server.status().Models) == 0 })
}
