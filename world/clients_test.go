package world

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/guide"
	"m40-llm/world/worldtest"
)

// journeys are the scripts of the folder clients, with the set of packages that each needs: those of different sets exclude
// each other's requirements.
var journeys = []struct{ name, set, model string }{
	{"openai", "clients", "smollm2"},
	{"anthropic", "clients", "smollm2"},
	{"ollama", "clients", "smollm2"},
	{"litellm", "clients", "smollm2"},
	{"langchain", "clients", "smollm2"},
	{"pydantic_ai", "clients", "smollm2"},
	{"llm", "clients", "smollm2"},
	{"litellm_proxy", "litellm-proxy", "smollm2"},
	{"lm_eval", "lm-eval", "smollm2"},
	{"generated", "openapi-client", "smollm2"},
	{"schemathesis", "schemathesis", "guide"},
}

func TestPublishedClientsWorkWithTheServer(t *testing.T) {
	models := folder(t, "models")
	servers := map[string]string{}
	for _, model := range []string{"smollm2", "guide"} {
		servers[model] = serve(t, "--models", models, "--model", model, "--ctx", "2048")
	}
	for _, j := range journeys {
		t.Run(j.name, func(t *testing.T) {
			t.Parallel() // Python imports packages for most of a journey, on one core
			runJourney(t, folder(t, j.set), j.name, servers[j.model], j.model, "")
		})
	}
}

func TestTheServerIsInFrontOfLlamaServer(t *testing.T) {
	models := folder(t, "models")
	path := os.Getenv("M40_LLM_LLAMA_SERVER")
	if path == "" {
		add(result{Client: "llama-server", Feature: "behind --upstream", Result: "skipped: not built in the user's cache folder"})
		t.Skip("M40_LLM_LLAMA_SERVER is not set: the path of a llama-server, which no package has")
	}
	addr := freeAddr(t)
	host, port, _ := net.SplitHostPort(addr)
	// Two answers at once, of 2,048 tokens each; its threads do not spin, so that it runs beside the server and the client.
	cmd := exec.Command(path, "-m", filepath.Join(models, "smollm2.gguf"), "--alias", "remote", "-c", "4096", "-np", "2", "-t", "2", "--poll", "0", "--host", host, "--port", port)
	worldtest.Start(t, cmd, "http://"+addr+"/health", startsWithin)
	base := serve(t, "--upstream", "http://"+addr)
	runJourney(t, folder(t, "clients"), "upstream", base, "remote", "llama-server behind --upstream, by ")
}

// The recipe for vLLM on a CPU of docs/upstreams.md.
func TestTheServerIsInFrontOfVLLM(t *testing.T) {
	recipe, addr := worldtest.VLLM(t, "remote"), freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	worldtest.Start(t, recipe(port), "http://"+addr+"/health", worldtest.StartOfVLLM)
	base := serve(t, "--upstream", "http://"+addr)
	runJourney(t, folder(t, "clients"), "upstream", base, "remote", "vLLM behind --upstream, by ")
}

// The recipe for Ray Serve of docs/upstreams.md, with a replica on each of two nodes, one of whose engines dies.
func TestTheServerIsInFrontOfReplicas(t *testing.T) {
	if !fixtures.Torture() {
		t.Skip("M40_LLM_TORTURE is not set to 1: Ray Serve is large")
	}
	engine := os.Getenv("M40_LLM_LLAMA_SERVER")
	if engine == "" {
		t.Skip("M40_LLM_LLAMA_SERVER is not set: the path of a llama-server, which no package has")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(t.TempDir(), "guide.gguf")
	if err := os.WriteFile(model, guide.Model, 0o600); err != nil {
		t.Fatal(err)
	}
	set := folder(t, "ray-serve")
	readResultsOf(t, exec.Command("unshare", "--map-root-user", "--net", filepath.Join(set, "bin", "python"), filepath.Join("clients", "ray_serve_journey.py"), path, engine, model), "")
}

// runJourney runs a script with the Python of a set of packages, and adds a result for each line that it prints.
func runJourney(t *testing.T, set, name, base, model, engine string) {
	readResultsOf(t, exec.Command(filepath.Join(set, "bin", "python"), filepath.Join("clients", name+"_journey.py"), base, model), engine)
}

func readResultsOf(t *testing.T, cmd *exec.Cmd, engine string) {
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
