package world

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownMemory is what a worker takes beside its model: Go's heap, with the vocabulary.
const ownMemory = 40 << 20

// What show and the status say of a model's memory is what its worker takes. The pages of the program's code and of the mapped file are
// not counted: the kernel drops them where memory is short.
func TestAModelTakesTheMemoryThatIsTold(t *testing.T) {
	models := folder(t, "models")
	files := map[string]string{"SmolLM2-135M-Instruct Q4_1": filepath.Join(models, "smollm2.gguf"), "Gemma 3 270M Q4_K_M": filepath.Join(models, "gemma3.gguf")}
	if file := os.Getenv("M40_LLM_MINILM"); file != "" {
		files["all-MiniLM-L6-v2 F16"] = file
	}
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			base := serve(t, "--model", file, "--device", "cpu")
			loaded := workerMemory(t)
			whole := 0.0
			if strings.Contains(name, "MiniLM") {
				texts := slices.Repeat([]string{strings.Repeat("The keeper climbed the stairs and lit the lamp. ", 40)}, 16)
				var got struct{ Data []any }
				post(t, base+"/v1/embeddings", map[string]any{"input": texts}, &got)
				whole = 1 // the cache is that of a step, which these fill
			} else {
				ids := make([]int, 1000)
				for i := range ids {
					ids[i] = 300 + i
				}
				var got struct{ Content string }
				post(t, base+"/completion", map[string]any{"prompt": ids, "n_predict": 8}, &got)
			}
			var status struct {
				Memory []struct{ Weights, Cache, Work int64 }
				Cache  struct{ Used int64 }
			}
			get(t, base+"/v1/status", &status)
			is, m := workerMemory(t), status.Memory[0]
			told := m.Weights + m.Work + max(status.Cache.Used, int64(whole*float64(m.Cache)))
			if is.anonymous > told+ownMemory || is.anonymous < m.Weights {
				t.Errorf("the worker takes %d MB beside mapped files, told are %d (weights %d, work %d, cache %d)", is.anonymous>>20, told>>20, m.Weights>>20, m.Work>>20, status.Cache.Used>>20)
			}
			if most := told + ownMemory + is.mapped + loaded.mapped; is.peak > most {
				t.Errorf("at its peak the worker took %d MB, at most %d were expected", is.peak>>20, most>>20)
			}
			needs := shown(t, file)
			if least := m.Weights + m.Work; needs < least*9/10 {
				t.Errorf("show says %d MB, and weights and workspace are %d already", needs>>20, least>>20)
			}
			if whole == 1 && (needs < told*9/10 || needs > told*11/10) {
				t.Errorf("show says %d MB, and the texts of a step take %d", needs>>20, told>>20)
			}
			said := fmt.Sprintf("loaded %d MB, at the peak %d, afterwards %d, of which %d are mapped files; planned for that are %d", loaded.resident/1e6, is.peak/1e6, is.resident/1e6, is.mapped/1e6, told/1e6)
			if t.Failed() {
				said = "fails: " + said
			}
			add(result{Client: name, Feature: "memory of the worker", Result: said})
		})
	}
}

type memory struct{ resident, peak, anonymous, mapped int64 } // bytes

// workerMemory returns what the worker of the server that this process has started takes.
func workerMemory(t *testing.T) (m memory) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid()
	for range 2 { // the server, its worker
		out, _ := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
		child := slices.IndexFunc(strings.Fields(string(out)), func(id string) bool {
			exe, _ := os.Readlink("/proc/" + id + "/exe")
			return exe == path
		})
		if child < 0 {
			t.Skip("this system does not say which processes there are")
		}
		pid, _ = strconv.Atoi(strings.Fields(string(out))[child])
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for name, to := range map[string]*int64{"VmRSS:": &m.resident, "VmHWM:": &m.peak, "RssAnon:": &m.anonymous, "RssFile:": &m.mapped} {
			if value, ok := strings.CutPrefix(line, name); ok {
				kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				*to = kib << 10
			}
		}
	}
	return m
}

// shown returns the memory that m40-llm show says.
func shown(t *testing.T, file string) int64 {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "show", "--json", file).Output()
	if err != nil {
		t.Fatalf("show: %v", err)
	}
	var details struct {
		Fit struct {
			Needs int64 `json:"needs"`
		} `json:"fit"`
	}
	if err := json.Unmarshal(out, &details); err != nil {
		t.Fatal(err)
	}
	return details.Fit.Needs
}

func get(t *testing.T, url string, to any) {
	t.Helper()
	got, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if err := json.NewDecoder(got.Body).Decode(to); err != nil {
		t.Fatal(err)
	}
}
