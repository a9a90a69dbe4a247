package handlers_test

import (
	"context"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/api"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/models"
	"m40-llm/infer"
)

func TestModelsOfOtherEnginesAreListedWhileTheEngineHangs(t *testing.T) {
	remote := infer.ModelInfo{Name: "far", Upstream: &infer.Upstream{Servers: []string{"a:1"}}}
	engine := &handlerstest.FakeEngine{OnStatus: func() infer.Status { return infer.Status{Remote: []infer.ModelInfo{remote}} }}
	list, err := models.New(models.Options{Engine: engine}).List(t.Context())
	if err != nil || len(list) != 2 || list[1].Name != "far" {
		t.Errorf("got %+v, %v", list, err)
	}
	var body struct {
		Data []struct {
			ID   string
			Meta struct{ Upstream string }
		}
	}
	mustDecode(t, handlerstest.Call(t, handlerstest.Server(t, engine), "GET", "/v1/models", ""), &body)
	if len(body.Data) != 2 || body.Data[1].Meta.Upstream != "a:1" || body.Data[0].Meta.Upstream != "" {
		t.Errorf("the API lists %+v", body)
	}
}

func TestOllama_AModelOfAnotherEngineIsDescribedAsThatRunsIt(t *testing.T) {
	at := int64(1)
	engine := &handlerstest.FakeEngine{OnStatus: func() infer.Status {
		at++ // as an engine does that gives the time of the request
		return infer.Status{Remote: []infer.ModelInfo{
			{Name: "far", Size: 5, ModifiedUnix: at, ContextTrain: 8192, Upstream: &infer.Upstream{Servers: []string{"a:1"}, Engine: "llama-server b9000", ContextLength: 2048, Tools: true}},
			{Name: "farther", ContextTrain: 4096, Upstream: &infer.Upstream{Servers: []string{"b:2"}, TemplateVars: []string{"enable_thinking"}}},
			{Name: "vectors", Embedding: 8, Upstream: &infer.Upstream{Servers: []string{"b:2"}, Tools: true}},
		}}
	}}
	s := handlerstest.Server(t, engine)
	var before, after api.OllamaTags
	mustDecode(t, handlerstest.Call(t, s, "GET", "/api/tags", ""), &before)
	mustDecode(t, handlerstest.Call(t, s, "GET", "/api/tags", ""), &after)
	far, farther, vectors := before.Models[len(before.Models)-3], before.Models[len(before.Models)-2], before.Models[len(before.Models)-1]
	if again := after.Models[len(after.Models)-3]; far.Digest != again.Digest || far.Digest == farther.Digest {
		t.Errorf("the digest was %s, and is %s", far.Digest, again.Digest)
	}
	if d := far.Details; d.ContextLength != 2048 || d.Family != "unknown" || !slices.Equal(d.Families, []string{"unknown"}) || d.Format != "gguf" {
		t.Errorf("its details are %+v", d)
	}
	if !slices.Equal(far.Capabilities, []string{"completion", "tools"}) || !slices.Equal(farther.Capabilities, []string{"completion", "thinking"}) || !slices.Equal(vectors.Capabilities, []string{"embedding"}) {
		t.Errorf("they can %v, %v and %v", far.Capabilities, farther.Capabilities, vectors.Capabilities)
	}
	for name, want := range map[string]struct {
		file    string
		context float64
	}{"far": {"# This model runs at a:1 (llama-server b9000): there is no file of it here\nFROM far", 2048}, "farther": {"# This model runs at b:2 (an engine without a name): there is no file of it here\nFROM farther", 4096}} {
		var shown api.OllamaShown
		mustDecode(t, handlerstest.Post(t, s, "/api/show", `{"model":"`+name+`"}`), &shown)
		if shown.Modelfile != want.file || shown.ModelInfo["general.architecture"] != "unknown" || shown.ModelInfo["unknown.context_length"] != want.context {
			t.Errorf("%s is shown as %q, %v", name, shown.Modelfile, shown.ModelInfo)
		}
	}
}

// What an engine does not say of its model is left out, or is what Ollama's clients write as unknown: an empty text, the family
// unknown, which they look for, and Go's zero time.
func TestWhatAnEngineDoesNotSayOfItsModelIsNotMadeUp(t *testing.T) {
	up := func() *infer.Upstream { return &infer.Upstream{Servers: []string{"a:1"}} }
	engine := &handlerstest.FakeEngine{OnStatus: func() infer.Status {
		return infer.Status{Remote: []infer.ModelInfo{
			{Name: "silent", Upstream: up()},
			{Name: "sized", Size: 7, ModifiedUnix: 1700000000, Upstream: up()},
			{Name: "known", Size: 7, Parameters: 1_500_000, Quant: "Q8_0", Architecture: "llama", ModifiedUnix: 1700000000, Upstream: up()},
		}}
	}}
	s := handlerstest.Server(t, engine)
	const nothing = `"parent_model":"","format":"unknown","family":"unknown","families":["unknown"],"parameter_size":"","quantization_level":""`
	const known = `"parent_model":"","format":"unknown","family":"llama","families":["llama"],"parameter_size":"1.50M","quantization_level":"Q8_0"`
	for _, c := range []struct {
		name, details string
		size, at      any // nil: absent
		info          map[string]any
	}{
		{"silent", nothing, nil, "0001-01-01T00:00:00Z", map[string]any{"general.architecture": "unknown"}},
		{"sized", nothing, 7.0, "2023-11-14T22:13:20Z", map[string]any{"general.architecture": "unknown"}},
		{"known", known, 7.0, "2023-11-14T22:13:20Z", map[string]any{"general.architecture": "llama", "general.parameter_count": 1.5e6}},
	} {
		var tags struct{ Models []map[string]any }
		mustDecode(t, handlerstest.Call(t, s, "GET", "/api/tags", ""), &tags)
		i := slices.IndexFunc(tags.Models, func(m map[string]any) bool { return m["name"] == c.name })
		listed := tags.Models[i]
		if listed["size"] != c.size || listed["modified_at"] != c.at || listed["remote_model"] != c.name || listed["remote_host"] != "a:1" {
			t.Errorf("/api/tags has %v", listed)
		}
		got := handlerstest.Post(t, s, "/api/show", `{"model":"`+c.name+`"}`)
		var shown map[string]any
		mustDecode(t, got, &shown)
		if !strings.Contains(got.Body, c.details) || !reflect.DeepEqual(shown["model_info"], any(c.info)) || shown["modified_at"] != c.at || shown["remote_host"] != "a:1" {
			t.Errorf("/api/show has %s", got.Body)
		}
		var list struct {
			Data []struct {
				ID   string
				Meta map[string]any
			}
		}
		mustDecode(t, handlerstest.Call(t, s, "GET", "/v1/models", ""), &list)
		for _, m := range list.Data {
			if _, has := m.Meta["n_params"]; m.ID == c.name && (m.Meta["size"] != c.size || has != (c.name == "known")) {
				t.Errorf("/v1/models has %v", m)
			}
		}
	}
	if ps := handlerstest.Call(t, s, "GET", "/api/ps", ""); strings.Contains(ps.Body, "0.00K") || strings.Contains(ps.Body, "silent") {
		t.Errorf("/api/ps has %s", ps.Body)
	}
}

func TestAPromptOfUnknownLengthHasNoFiguresInAStream(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return handlerstest.Replay(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{}}, infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 4}}, handlerstest.DoneEvent(infer.FinishStop))
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"stream":true}`)
	if !strings.Contains(got.Body, ": prefill\n") || !strings.Contains(got.Body, ": prefill 1 of 4 tokens\n") {
		t.Errorf("got %s", got.Body)
	}
}
