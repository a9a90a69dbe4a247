package world

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// journeys are the scripts of the folder clients, with the set of packages that each needs. Those of lm-eval and
// schemathesis exclude the others' requirements.
var journeys = []struct{ name, set, model string }{
	{"openai", "clients", "smollm2"},
	{"anthropic", "clients", "smollm2"},
	{"ollama", "clients", "smollm2"},
	{"litellm", "clients", "smollm2"},
	{"langchain", "clients", "smollm2"},
	{"pydantic_ai", "clients", "smollm2"},
	{"llm", "clients", "smollm2"},
	{"lm_eval", "lm-eval", "smollm2"},
	{"schemathesis", "schemathesis", "guide"},
}

func TestPublishedClientsWorkWithTheServer(t *testing.T) {
	models := folder(t, "models")
	for _, model := range []string{"smollm2", "guide"} {
		t.Run(model, func(t *testing.T) {
			base := serve(t, "--models", models, "--model", model, "--ctx", "2048")
			for _, j := range journeys {
				if j.model == model {
					t.Run(j.name, func(t *testing.T) { runJourney(t, folder(t, j.set), j.name, base, model, "") })
				}
			}
		})
	}
}

// An engine that somebody has built: no package has it.
func TestTheServerIsInFrontOfLlamaServer(t *testing.T) {
	models := folder(t, "models")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "m40-llm", "llama.cpp", "llama-server")
	if _, err := os.Stat(path); err != nil {
		add(result{Client: "llama-server", Feature: "behind --upstream", Result: "skipped: not built in the user's cache folder"})
		t.Skipf("llama-server is not built: %v", err)
	}
	version, _ := exec.Command(path, "--version").CombinedOutput()
	version, _, _ = bytes.Cut(version, []byte("\n"))
	addr := freeAddr(t)
	host, port, _ := bytes.Cut([]byte(addr), []byte(":"))
	start(t, "http://"+addr+"/health", path, "-m", filepath.Join(models, "smollm2.gguf"), "--alias", "remote", "-c", "2048", "--host", string(host), "--port", string(port))
	base := serve(t, "--upstream", "http://"+addr)
	runJourney(t, folder(t, "clients"), "upstream", base, "remote", "llama-server "+string(version)+", behind --upstream, by ")
}

// runJourney runs a script with the Python of a set of packages, and adds a result for each line that it prints.
func runJourney(t *testing.T, set, name, base, model, engine string) {
	cmd := exec.Command(filepath.Join(set, "bin", "python"), filepath.Join("clients", name+"_journey.py"), base, model)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	lines := 0
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		var line struct{ Client, Version, Feature, Error string }
		if json.Unmarshal(scan.Bytes(), &line) != nil {
			continue // what a library prints
		}
		lines++
		r := result{engine + line.Client, line.Version, line.Feature, "works"}
		if line.Error != "" {
			r.Result = "fails: " + line.Error
			t.Errorf("%s: %s: %s", line.Client, line.Feature, line.Error)
		}
		add(r)
	}
	if lines == 0 {
		t.Errorf("the journey has no results:\n%s", stderr.String())
	}
}
