package handlers_test

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// filling is an engine whose vocabulary has the tokens for filling in the middle: 1, 2 and 3; 9 begins a
// text, and other texts are one token for each byte, from 100 on.
func filling() (*handlerstest.FakeEngine, *infer.Request) {
	engine, asked := captured()
	engine.OnTokenize = func(_, text string, addSpecial, parseSpecial bool) (ids []int32, err error) {
		if addSpecial {
			ids = append(ids, 9)
		}
		for i, name := range []string{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"} {
			if parseSpecial && text == name {
				return append(ids, int32(i+1)), nil
			}
		}
		for i := range len(text) {
			ids = append(ids, 100+int32(text[i]-'a'))
		}
		return ids, nil
	}
	return engine, asked
}

func TestInfill_TheGapIsBetweenItsTokens(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		want             []int32
	}{
		{"llama-server's route", "/infill", `{"input_prefix":"a","prompt":"b","input_suffix":"c","n_predict":4}`, []int32{9, 1, 100, 101, 2, 102, 3}},
		{"a text completion", "/v1/completions", `{"prompt":"a","suffix":"c"}`, []int32{9, 1, 100, 2, 102, 3}},
		{"Ollama's completion", "/api/generate", `{"prompt":"a","suffix":"c"}`, []int32{9, 1, 100, 2, 102, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine, asked := filling()
			if got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, c.body); got.Status != http.StatusOK || !slices.Equal(asked.Tokens, c.want) || asked.Prompt != "" {
				t.Errorf("got %d, tokens %v: %s", got.Status, asked.Tokens, got.Body)
			}
		})
	}
	engine, asked := filling()
	engine.OnGenerate = func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return handlerstest.Replay(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 5, Total: 5}}, handlerstest.WordEvent(1, "a()\n  b()\n"), handlerstest.WordEvent(2, "c()"), handlerstest.DoneEvent(infer.FinishStop))
	}
	const editor = `{"input_prefix":"a","input_suffix":"c","input_extra":[],"prompt":"","n_predict":128,"stop":[],"n_indent":2,"top_k":40,"top_p":0.99,"samplers":["top_k","top_p","infill"],"t_max_prompt_ms":500,"t_max_predict_ms":1000,"cache_prompt":true`
	for _, c := range []struct{ name, body, want string }{
		{"some fields of a whole answer", editor + `,"stream":false,"response_fields":["content","timings/prompt_n","truncated","missing"]}`, `{"content":"a()\n  b()\n","timings/prompt_n":5,"truncated":false}`},
		{"some fields of a stream's last event", editor + `,"stream":true,"response_fields":["stop_type"]}`, `data: {"stop_type":"limit"}`},
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/infill", c.body); got.Status != http.StatusOK || !strings.Contains(got.Body, c.want) || strings.Contains(got.Body, "c()") {
			t.Errorf("%s: got %d: %s", c.name, got.Status, got.Body)
		}
	}
	engine, asked = filling()
	if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/infill", `{"input_prefix":"<|fim_middle|>"}`); got.Status != http.StatusOK || len(asked.Tokens) != 4+len("<|fim_middle|>") {
		t.Errorf("the name of a token in a text became the token: %v", asked.Tokens)
	}
	if shown := handlerstest.Post(t, handlerstest.Server(t, engine), "/api/show", `{"model":"guide"}`); !strings.Contains(shown.Body, `"capabilities":["completion","tools","insert"]`) {
		t.Errorf("show: %s", shown.Body)
	}
}

func TestInfill_OfOtherModelsIsRefused(t *testing.T) {
	for path, body := range map[string]string{"/infill": `{"input_prefix":"a","input_suffix":"b"}`, "/v1/completions": `{"prompt":"a","suffix":"b"}`} {
		got := handlerstest.Post(t, handlerstest.Server(t, handlerstest.OpenGuide(t)), path, body)
		if e := parseError(t, got); got.Status != http.StatusBadRequest || e.Param == nil || !strings.HasSuffix(*e.Param, "suffix") || !strings.Contains(e.Message, "guide cannot fill in the middle") {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
	}
	engine, _ := filling()
	for body, want := range map[string]string{
		`{"prompt":[1,2],"suffix":"b"}`:                        "suffix needs a prompt that is text",
		`{"prompt":"a","suffix":"b","echo":true,"logprobs":1}`: "suffix and echo",
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, want) {
			t.Errorf("%s: got %d: %s", body, got.Status, got.Body)
		}
	}
}

func TestLlamaServer_Completion(t *testing.T) {
	const end = `"model":"guide","tokens_predicted":2,"tokens_evaluated":7,"tokens_cached":8,"truncated":false`
	engine := func(end record.End) *handlerstest.FakeEngine {
		return &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			done := handlerstest.DoneEvent(end.Reason)
			done.Done.End = end
			return handlerstest.Replay(scoredEvent(1, -0.5, "Hi", sample.Candidate{ID: 1, LogProb: -0.5}), done)
		}}
	}
	whole := handlerstest.Post(t, handlerstest.Server(t, engine(record.End{Reason: infer.FinishStop, StopString: "x"})), "/completion", `{"prompt":"a","n_probs":1,"return_tokens":true,"cache_prompt":true,"id_slot":-1}`)
	for _, want := range []string{`{"index":0,"content":"Hi","tokens":[1],"id_slot":0,"stop":true,"completion_probabilities":[{"id":1,"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[{"id":1,"token":"b","logprob":-0.5,"bytes":[98]}]}],`,
		end + `,"stop_type":"word","stopping_word":"x","generation_settings":{`, `"timings":{`} {
		if !strings.Contains(whole.Body, want) {
			t.Errorf("got %s, want %s", whole.Body, want)
		}
	}
	stream, _ := sseData(t, handlerstest.Post(t, handlerstest.Server(t, engine(record.End{Reason: infer.FinishLength})), "/completion", `{"prompt":[1,2],"stream":true}`).Body)
	if len(stream) != 2 || stream[0] != `{"index":0,"content":"Hi","tokens":[],"id_slot":0,"stop":false}` || !strings.Contains(stream[1], end+`,"stop_type":"limit","stopping_word":""`) {
		t.Errorf("got %q", stream)
	}
}

func TestLlamaServer_AnAnswerThatFilledTheContextIsTruncated(t *testing.T) {
	for name, c := range map[string]struct {
		end  record.End
		want string
	}{
		"the context was full":  {record.End{Reason: infer.FinishLength, ContextFull: true}, `"tokens_cached":8,"truncated":true,"stop_type":"limit"`},
		"the limit was reached": {record.End{Reason: infer.FinishLength}, `"tokens_cached":8,"truncated":false,"stop_type":"limit"`},
		"it ended in time":      {record.End{Reason: infer.FinishStop}, `"tokens_cached":8,"truncated":false,"stop_type":"eos"`},
	} {
		done := handlerstest.DoneEvent(c.end.Reason)
		done.Done.End = c.end
		engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			return handlerstest.Replay(handlerstest.WordEvent(1, "a"), done)
		}}
		for _, stream := range []string{"true", "false"} {
			if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/completion", `{"prompt":"a","stream":`+stream+`}`); !strings.Contains(got.Body, c.want) {
				t.Errorf("%s, stream %s: got %s, want %s", name, stream, got.Body, c.want)
			}
		}
	}
}

func TestLlamaServer_TheRequestIsTheEngines(t *testing.T) {
	engine, asked := captured()
	handlerstest.Post(t, handlerstest.Server(t, engine), "/completion", `{"prompt":"a","n_predict":5,"temperature":0.5,"typ_p":0.9,"logit_bias":[[3,1.5],[4,false]],"stop":["x"],"n_probs":3,"samplers":["temperature"]}`)
	want := infer.DefaultRequest()
	want.Prompt, want.MaxTokens, want.Alternatives, want.Stop = "a", 5, 3, []string{"x"}
	p := &want.Params
	p.Temperature, p.TypicalP, p.LogitBias, p.Samplers = 0.5, 0.9, map[int32]float64{3: 1.5, 4: -1000}, []string{"temperature"}
	sameRequest(t, *asked, want)
	for body, want := range map[string]string{
		`{"prompt":["a","b"]}`:                 "must be one text",
		`{"prompt":""}`:                        "must be one text",
		`{}`:                                   "prompt must be a string",
		`{"prompt":"a","n_predict":-9}`:        "n_predict must be",
		`{"prompt":"a","n_probs":1000}`:        "n_probs must be",
		`{"prompt":"a","logit_bias":[[1]]}`:    "logit_bias[0] must be",
		`{"prompt":"a","logit_bias":["x"]}`:    "logit_bias",
		`{"prompt":"a","logit_bias":[[{},1]]}`: "logit_bias[0] must be",
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/completion", body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, want) {
			t.Errorf("%s: got %d: %s", body, got.Status, got.Body)
		}
	}
}

func TestLlamaServer_PropsAndSlots(t *testing.T) {
	got := handlerstest.Call(t, handlerstest.Server(t, handlerstest.OpenGuide(t)), http.MethodGet, "/props", "")
	for _, want := range []string{`"n_ctx":`, `"model_alias":"guide"`, `"modalities":{"audio":false,"vision":false}`, `"temperature":0.7`} {
		if !strings.Contains(got.Body, want) {
			t.Errorf("props lack %s: %s", want, got.Body)
		}
	}
	if strings.Contains(got.Body, ".gguf") {
		t.Errorf("props reveal a path: %s", got.Body)
	}
	if got := handlerstest.Call(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), http.MethodGet, "/slots", ""); strings.TrimSpace(got.Body) != "[]" {
		t.Errorf("slots: %s", got.Body)
	}
	h := newHouse(t)
	for _, who := range h.askers {
		if who.person == "" {
			continue
		}
		want := 1
		if who.owner {
			want = 3
		}
		if got := handlerstest.Call(t, h.Server, http.MethodGet, "/slots", "", who.header...); strings.Count(got.Body, `"is_processing":true`) != want {
			t.Errorf("%s sees %s, want %d slots", who.name, got.Body, want)
		}
	}
}
