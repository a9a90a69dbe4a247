package world

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"m40-llm/infer/fixtures"
)

// mostApart is how much the logarithms of two perplexities may differ. Both programs round activations to 8 bits, in other blocks.
const mostApart = 0.02

func TestPerplexitiesAreThoseOfLlamaCpp(t *testing.T) {
	folder := folder(t, "models")
	peer := filepath.Join(filepath.Dir(os.Getenv("M40_LLM_LLAMA_SERVER")), "llama-perplexity")
	if _, err := os.Stat(peer); os.Getenv("M40_LLM_LLAMA_SERVER") == "" || err != nil {
		add(result{Client: "llama-perplexity", Feature: "perplexities beside ours", Result: "skipped: not built beside llama-server"})
		t.Skip("there is no llama-perplexity beside the llama-server that M40_LLM_LLAMA_SERVER names")
	}
	whole, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	// In make torture Gemma does too, whose log-probabilities are compared with transformers' in any case.
	bytes, models := 3500, map[string]string{"smollm2": "SmolLM2-135M-Instruct Q4_1"}
	if fixtures.Torture() {
		bytes, models["gemma3"] = 7000, "Gemma 3 270M Q4_K_M"
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, whole[:bytes], 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for model, name := range models {
		t.Run(model, func(t *testing.T) {
			file := filepath.Join(folder, model+".gguf")
			out, err := exec.Command(path, "perplexity", "--json", "--device", "cpu", "--ctx", "512", file, text).Output()
			if err != nil {
				t.Fatal(err)
			}
			var ours struct {
				Perplexity float64 `json:"perplexity"`
			}
			if err := json.Unmarshal(out, &ours); err != nil {
				t.Fatal(err)
			}
			out, err = exec.Command(peer, "-m", file, "-f", text, "-c", "512", "-b", "512", "-t", "2", "--poll", "0").CombinedOutput()
			found := regexp.MustCompile(`PPL = ([0-9.]+)`).FindSubmatch(out)
			if err != nil || found == nil {
				t.Fatalf("llama-perplexity: %v\n%s", err, out)
			}
			theirs, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil {
				t.Fatal(err)
			}
			said := fmt.Sprintf("%.3f, and %.3f by llama.cpp, of %d bytes", ours.Perplexity, theirs, bytes)
			if !(math.Abs(math.Log(ours.Perplexity/theirs)) <= mostApart) {
				t.Errorf("the perplexity is %s", said)
				said = "fails: " + said
			}
			add(result{Client: name, Feature: "perplexity of documentation, in windows of 512", Result: said})
		})
	}
}
