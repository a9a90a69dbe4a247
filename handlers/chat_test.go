package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/api"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

const hello = `{"messages":[{"role":"user","content":"Hello"}]}`

// chatBody is hello with further fields.
func chatBody(fields string) string {
	return `{"messages":[{"role":"user","content":"Hello"}],` + fields + `}`
}

// oneTool is a field with a tool, oneToolList its value.
const (
	oneToolList = `[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
	oneTool     = `"tools":` + oneToolList
)

// The shapes are OpenAI's published ones, written down by hand.
func TestChat_ResponseShape(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		done := handlerstest.DoneEvent(infer.FinishLength)
		done.Done.Text = "!"
		return handlerstest.Replay(handlerstest.WordEvent(1, "Hel"), handlerstest.WordEvent(2, "lo"), done)
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", hello)
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d, %s: %s", got.Status, got.Header.Get("Content-Type"), got.Body)
	}
	sameJSON(t, got.Body, `{
		"object": "chat.completion", "model": "guide", "system_fingerprint": "m40-llm-test",
		"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "logprobs": null, "finish_reason": "length"}],
		"usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}}`)
	var head struct {
		ID      string
		Created int64
	}
	if err := json.Unmarshal([]byte(got.Body), &head); err != nil || !strings.HasPrefix(head.ID, "chatcmpl-") || head.Created == 0 {
		t.Errorf("id is %q, created %d", head.ID, head.Created)
	}
}

func TestChat_LogProbs(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if r.Alternatives != 2 {
			return failing(errors.New("the request asks for the wrong number of alternatives"))
		}
		half := scoredEvent(5, -2, "", sample.Candidate{ID: 0, LogProb: -0.25}, sample.Candidate{ID: 1, LogProb: -3})
		half.Token.Bytes = []byte{0xc3}
		return handlerstest.Replay(half, handlerstest.DoneEvent(infer.FinishStop))
	}}
	const fields = `"logprobs":true,"top_logprobs":2`
	const logProbs = `{"content":[{"token":"�","logprob":-2,"bytes":[195],"top_logprobs":[
		{"token":"a","logprob":-0.25,"bytes":[97]},{"token":"b","logprob":-3,"bytes":[98]}]}]}`
	t.Run("a whole answer lists each token with its alternatives", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(fields))
		var body struct {
			Choices []struct{ LogProbs json.RawMessage }
		}
		if err := json.Unmarshal([]byte(got.Body), &body); err != nil || len(body.Choices) != 1 {
			t.Fatalf("got %s", got.Body)
		}
		sameJSON(t, string(body.Choices[0].LogProbs), logProbs)
	})
	t.Run("a stream sends a token that releases no text yet", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(fields+`,"stream":true`))
		data, _ := sseData(t, got.Body)
		sameJSON(t, data[1], `{"object":"chat.completion.chunk","model":"guide","system_fingerprint":"m40-llm-test",
			"choices":[{"index":0,"delta":{"content":""},"logprobs":`+logProbs+`,"finish_reason":null}]}`)
	})
	t.Run("tokens are named by id on request", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(fields+`,"return_tokens_as_token_ids":true`))
		for _, want := range []string{`"token_id:5"`, `"token_id:0"`, `"token_id:1"`} {
			if !strings.Contains(got.Body, want) {
				t.Errorf("the body lacks %s: %s", want, got.Body)
			}
		}
	})
}

func TestChat_StreamShape(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		done := handlerstest.DoneEvent(infer.FinishStop)
		done.Done.Text = "!"
		return handlerstest.Replay(
			infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2}},
			infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "guide", Done: 5, Total: 10}},
			infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 4, Total: 7}},
			handlerstest.WordEvent(1, "Hel"), handlerstest.WordEvent(9, ""), handlerstest.WordEvent(2, "lo"), done)
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(`"stream":true,"stream_options":{"include_usage":true}`))
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Cache-Control": "no-store"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Header.Get(name), want)
		}
	}
	data, comments := sseData(t, got.Body)
	if want := []string{"queued 2", "loading 5 of 10 bytes", "prefill 4 of 7 tokens"}; !reflect.DeepEqual(comments, want) {
		t.Errorf("comments are %q, want %q", comments, want)
	}
	const head = `"object":"chat.completion.chunk","model":"guide","system_fingerprint":"m40-llm-test"`
	want := []string{
		`{` + head + `,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
		`{` + head + `,"choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}]}`,
		`{` + head + `,"choices":[{"index":0,"delta":{"content":"lo"},"logprobs":null,"finish_reason":null}]}`,
		`{` + head + `,"choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null}]}`,
		`{` + head + `,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`,
		`{` + head + `,"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3}}}`,
	}
	if len(data) != len(want)+1 || data[len(data)-1] != "[DONE]" {
		t.Fatalf("the stream has %d events, want %d and [DONE]: %s", len(data), len(want), got.Body)
	}
	ids := map[string]bool{}
	for i := range want {
		sameJSON(t, data[i], want[i])
		var head struct {
			ID      string
			Created int64
		}
		if err := json.Unmarshal([]byte(data[i]), &head); err != nil || head.Created == 0 {
			t.Errorf("chunk %d has no time of creation: %s", i, data[i])
		}
		ids[head.ID] = true
	}
	if len(ids) != 1 {
		t.Errorf("the chunks have the ids %v, want one", ids)
	}
}

// llama-server's fields: how much of the prompt is read, and how fast the answer is.
func TestStreams_ProgressAndTimings(t *testing.T) {
	done := handlerstest.DoneEvent(infer.FinishStop)
	done.Done.Usage = record.Usage{PromptTokens: 9, CachedTokens: 4, CompletionTokens: 3}
	done.Done.Timings = record.Timings{Prefill: 50 * time.Millisecond, Decode: 20 * time.Millisecond}
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return handlerstest.Replay(
			infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 4, Total: 9, Cached: 4}},
			infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 9, Total: 9, Cached: 4}},
			handlerstest.WordEvent(1, "a"), handlerstest.WordEvent(2, "b"), done)
	}}
	const whole = `{"cache_n":4,"prompt_n":5,"prompt_ms":50,"prompt_per_token_ms":10,"prompt_per_second":100,
		"predicted_n":3,"predicted_ms":20,"predicted_per_token_ms":10,"predicted_per_second":100}`
	type chunk struct {
		Choices  []json.RawMessage
		Progress *api.PromptProgress `json:"prompt_progress"`
		Timings  json.RawMessage
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		body := func(fields string) string {
			return `{"prompt":"a","messages":[{"role":"user","content":"a"}],` + fields + `}`
		}
		var answer chunk
		got := handlerstest.Post(t, handlerstest.Server(t, engine), path, body(`"stream":false,"return_progress":true`))
		if err := json.Unmarshal([]byte(got.Body), &answer); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, string(answer.Timings), whole)

		for fields, want := range map[string]struct{ progress, timed int }{
			`"stream":true`:                                                    {0, 1},
			`"stream":true,"return_progress":true`:                             {2, 1},
			`"stream":true,"timings_per_token":true`:                           {0, 3},
			`"stream":true,"return_progress":true,"timings_per_token":true`:    {2, 3},
			`"stream":true,"return_progress":false,"timings_per_token":false`:  {0, 1},
			`"stream":true,"timings_per_token":true,"logprobs":null,"n":1`:     {0, 3},
			`"stream":true,"stream_options":{"include_usage":true},"user":"u"`: {0, 1},
		} {
			data, comments := sseData(t, handlerstest.Post(t, handlerstest.Server(t, engine), path, body(fields)).Body)
			var progress []api.PromptProgress
			timed := 0
			var last json.RawMessage
			for _, d := range data[:len(data)-1] {
				var c chunk
				if err := json.Unmarshal([]byte(d), &c); err != nil {
					t.Fatal(err)
				}
				if c.Progress != nil {
					c.Progress.MS = 0
					progress = append(progress, *c.Progress)
					if len(c.Choices) != 1 {
						t.Errorf("%s %s: progress without a choice: %s", path, fields, d)
					}
				}
				if c.Timings != nil {
					timed, last = timed+1, c.Timings
				}
			}
			if len(progress) != want.progress || timed != want.timed || len(comments) != 2-want.progress {
				t.Errorf("%s %s: %d chunks have progress, %d timings, %d are comments: %s", path, fields, len(progress), timed, len(comments), data)
			}
			if want := []api.PromptProgress{{Total: 9, Cached: 4, Processed: 4}, {Total: 9, Cached: 4, Processed: 9}}; len(progress) > 0 && !reflect.DeepEqual(progress, want) {
				t.Errorf("%s: the progress is %+v", path, progress)
			}
			sameJSON(t, string(last), whole)
		}
	}
}

func TestChat_StreamWithoutUsage(t *testing.T) {
	got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/chat/completions", chatBody(`"stream":true`))
	if strings.Contains(got.Body, `"usage"`) {
		t.Errorf("nobody asked for the usage: %s", got.Body)
	}
}

// Several answers run side by side, each with its own seed, and come back under
// their own index.
func TestChat_SeveralAnswers(t *testing.T) {
	meet := make(chan struct{}, 3)
	engine := &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			meet <- struct{}{}
			for len(meet) < 3 { // an answer that waited for another would hang here
				time.Sleep(time.Millisecond)
			}
			text := string(rune('a' + r.Params.Seed))
			_ = yield(handlerstest.WordEvent(1, text), nil) && yield(handlerstest.DoneEvent(infer.FinishStop), nil)
		}
	}}
	t.Run("in one response", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(`"n":3,"seed":4`))
		var body api.ChatResponse
		if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"e", "f", "g"} {
			if c := body.Choices[i]; c.Index != i || c.Message.Content == nil || *c.Message.Content != want {
				t.Errorf("choice %d is %+v, want %q", i, c, want)
			}
		}
		if u := body.Usage; u.PromptTokens != 7 || u.CompletionTokens != 6 || u.TotalTokens != 13 {
			t.Errorf("usage is %+v: the prompt counts once, the answers each", u)
		}
	})
	for len(meet) > 0 {
		<-meet
	}
	t.Run("in one stream", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(`"n":3,"seed":4,"stream":true`))
		texts, ends := map[int]string{}, 0
		data, _ := sseData(t, got.Body)
		for _, d := range data[:len(data)-1] {
			var chunk api.ChatChunk
			if err := json.Unmarshal([]byte(d), &chunk); err != nil {
				t.Fatal(err)
			}
			c := chunk.Choices[0]
			if c.Delta.Content != nil {
				texts[c.Index] += *c.Delta.Content
			}
			if c.FinishReason != nil {
				ends++
			}
		}
		if want := (map[int]string{0: "e", 1: "f", 2: "g"}); !reflect.DeepEqual(texts, want) || ends != 3 {
			t.Errorf("texts are %v with %d ends, want %v with 3", texts, ends, want)
		}
	})
}

func TestChat_RequestFields(t *testing.T) {
	user := []chat.Message{{Role: "user", Content: "Hello"}}
	for _, tc := range []struct {
		name, body string
		want       func(r *infer.Request)
	}{
		{"a request that sets nothing gets the defaults", hello, func(r *infer.Request) {}},
		{"sampler settings and limits are passed on", chatBody(`"model":"m","temperature":0,"top_k":5,"top_p":0.5,"min_p":0.1,"typical_p":0.9,
			"repeat_penalty":1.1,"repeat_last_n":32,"presence_penalty":-1,"frequency_penalty":2,"seed":11,"max_tokens":9,"ignore_eos":true,"logit_bias":{"50256":-100}`),
			func(r *infer.Request) {
				r.Model, r.MaxTokens, r.IgnoreEOS = "m", 9, true
				p := &r.Params
				p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.RepeatPenalty, p.RepeatLastN = 0, 5, 0.5, 0.1, 0.9, 1.1, 32
				p.PresencePenalty, p.FrequencyPenalty, p.Seed, p.LogitBias = -1, 2, 11, map[int32]float64{50256: -100}
			}},
		{"null means the default", chatBody(`"temperature":null,"max_tokens":null,"stop":null,"seed":null,"tools":null,"stream_options":null,"response_format":null`), func(r *infer.Request) {}},
		{"max_completion_tokens goes before max_tokens", chatBody(`"max_tokens":9,"max_completion_tokens":12`), func(r *infer.Request) { r.MaxTokens = 12 }},
		{"vLLM's top_k of -1 means off", chatBody(`"top_k":-1`), func(r *infer.Request) { r.Params.TopK = 0 }},
		{"llama-server's top_n_sigma of -1 means off, and typ_p is typical_p", chatBody(`"top_n_sigma":-1,"typ_p":0.7`), func(r *infer.Request) { r.Params.TypicalP = 0.7 }},
		{"further samplers are passed on", chatBody(`"top_n_sigma":1.5,"min_keep":2,"xtc_probability":0.5,"xtc_threshold":0.2,"dynatemp_range":0.3,"dynatemp_exponent":1.5,
			"mirostat":2,"mirostat_tau":4,"mirostat_eta":0.2,"dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,"dry_penalty_last_n":512,
			"dry_sequence_breakers":["."],"samplers":["top_k","temperature"]`),
			func(r *infer.Request) {
				p := &r.Params
				p.TopNSigma, p.MinKeep, p.XTCProbability, p.XTCThreshold, p.DynatempRange, p.DynatempExponent = 1.5, 2, 0.5, 0.2, 0.3, 1.5
				p.Mirostat, p.MirostatTau, p.MirostatEta, p.DryMultiplier, p.DryBase, p.DryAllowedLength, p.DryPenaltyLastN = 2, 4, 0.2, 0.8, 2, 3, 512
				p.DryBreakers, p.Samplers = []string{"."}, []string{"top_k", "temperature"}
			}},
		{"null means the default of lists too", chatBody(`"dry_sequence_breakers":null,"samplers":null,"banned_strings":null`), func(r *infer.Request) {}},
		{"banned strings are passed on", chatBody(`"banned_strings":["a","b"]`), func(r *infer.Request) { r.BannedStrings = []string{"a", "b"} }},
		{"under KoboldCpp's name too", chatBody(`"banned_tokens":["a"]`), func(r *infer.Request) { r.BannedStrings = []string{"a"} }},
		{"stop may be a string", chatBody(`"stop":"END"`), func(r *infer.Request) { r.Stop = []string{"END"} }},
		{"stop may be an array, whose empty strings stop nothing", chatBody(`"stop":["a","","b"]`), func(r *infer.Request) { r.Stop = []string{"a", "b"} }},
		{"unknown fields are ignored", chatBody(`"user":"x","store":true,"metadata":{"a":[1]}`), func(r *infer.Request) {}},
		{"response_format text is the default", chatBody(`"response_format":{"type":"text"}`), func(r *infer.Request) {}},
		{"JSON mode is the schema of any object", chatBody(`"response_format":{"type":"json_object"}`), func(r *infer.Request) { r.JSONSchema = json.RawMessage(`{"type":"object"}`) }},
		{"JSON mode may bring a schema, as for llama-server", chatBody(`"response_format":{"type":"json_object","schema":{"type":"array"}}`), func(r *infer.Request) { r.JSONSchema = json.RawMessage(`{"type":"array"}`) }},
		{"a schema is passed on as it is", chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"z":1, "a":2}}}`),
			func(r *infer.Request) { r.JSONSchema, r.StrictSchema = json.RawMessage(`{"z":1, "a":2}`), true }},
		{"so is llama-server's", chatBody(`"json_schema":{"const":1},"grammar":null`), func(r *infer.Request) { r.JSONSchema = json.RawMessage(`{"const":1}`) }},
		{"and its grammar", chatBody(`"grammar":"root ::= \"a\"","json_schema":null`), func(r *infer.Request) { r.Grammar = `root ::= "a"` }},
		{"logprobs alone asks for no alternatives", chatBody(`"logprobs":true`), func(r *infer.Request) {}},
		{"tools reach the template as they are", chatBody(`"tools":[{"type":"function","z":1,"function":{"name":"f","x":2}}],"tool_choice":"auto"`),
			func(r *infer.Request) {
				r.Tools = json.RawMessage(`[{"type":"function","z":1,"function":{"name":"f","x":2}}]`)
			}},
		{"tool_choice none hides the tools", chatBody(`"tool_choice":"none",` + oneTool), func(r *infer.Request) {}},
		{"a call can be asked for", chatBody(`"tool_choice":"required",` + oneTool), func(r *infer.Request) {
			r.Tools, r.ToolChoice = json.RawMessage(oneToolList), "required"
		}},
		{"and that of one tool", chatBody(`"tool_choice":{"type":"function","function":{"name":"f"}},` + oneTool), func(r *infer.Request) {
			r.Tools, r.ToolChoice = json.RawMessage(oneToolList), "f"
		}},
		{"one call at a time", chatBody(`"parallel_tool_calls":false,` + oneTool), func(r *infer.Request) {
			r.Tools, r.SingleCall = json.RawMessage(oneToolList), true
		}},
		{"template variables are passed on", chatBody(`"reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false}`), func(r *infer.Request) {
			r.TemplateVars = map[string]json.RawMessage{"enable_thinking": json.RawMessage("false"), "reasoning_effort": json.RawMessage(`"low"`)}
		}},
		{"add_generation_prompt can be switched off", chatBody(`"add_generation_prompt":false`), func(r *infer.Request) {
			r.TemplateVars = map[string]json.RawMessage{"add_generation_prompt": json.RawMessage("false")}
		}},
		{"the developer is the system, parts become lines, and what a tool said is passed on", `{"messages":[
			{"role":"developer","content":"S"},
			{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"Ann"},
			{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"1","content":"42"},
			{"role":"assistant","reasoning":"so","content":"ok"}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{
				{Role: "system", Content: "S"},
				{Role: "user", Content: "a\nb", Name: "Ann"},
				{Role: "assistant", ReasoningContent: "hm", ToolCalls: json.RawMessage(`[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]`)},
				{Role: "tool", ToolCallID: "1", Content: "42"},
				{Role: "assistant", ReasoningContent: "so", Content: "ok"},
			}
		}},
		{"whole numbers may be written with a point or an exponent", chatBody(`"max_tokens":4.0,"top_k":5e0,"seed":1.1e1,"n":1.0,"stop":["4.0"],"logprobs":true,"top_logprobs":2.0,"temperature":1.0`), func(r *infer.Request) {
			r.MaxTokens, r.Params.TopK, r.Params.Seed, r.Stop, r.Alternatives, r.Params.Temperature = 4, 5, 11, []string{"4.0"}, 2, 1
		}},
		{"a negative seed is drawn", chatBody(`"seed":-42`), func(r *infer.Request) {}},
		{"max_completion_tokens counts before max_tokens", chatBody(`"max_tokens":5,"max_completion_tokens":7`), func(r *infer.Request) { r.MaxTokens = 7 }},
		{"null is the default of every field", chatBody(`"model":null,"stream":null,"stream_options":null,"temperature":null,"top_p":null,"max_tokens":null,"max_completion_tokens":null,
			"stop":null,"seed":null,"presence_penalty":null,"frequency_penalty":null,"logprobs":null,"top_logprobs":null,"n":null,"logit_bias":null,"response_format":null,
			"tools":null,"tool_choice":null,"parallel_tool_calls":null,"reasoning_effort":null,"user":null,"top_k":null,"min_p":null,"repeat_penalty":null,"samplers":null,
			"continue_final_message":null,"add_generation_prompt":null,"return_progress":null,"timings_per_token":null,"chat_template_kwargs":null`), func(r *infer.Request) {}},
		{"no tools are an empty array too", chatBody(`"tools":[],"tool_choice":"auto","parallel_tool_calls":true`), func(r *infer.Request) {}},
		{"fields of OpenAI that mean nothing here are ignored", chatBody(`"user":"u","safety_identifier":"s","prompt_cache_key":"k","service_tier":"auto","modalities":["text"],"prediction":null,"verbosity":"low","functions":[]`), func(r *infer.Request) {}},
		{"samplers name the stages", chatBody(`"samplers":["top_k","temperature"],"repeat_penalty":1.2,"min_p":0.2`), func(r *infer.Request) {
			r.Params.Samplers, r.Params.RepeatPenalty, r.Params.MinP = []string{"top_k", "temperature"}, 1.2, 0.2
		}},
		{"a refusal is what the assistant said, as a part and as a field", `{"messages":[
			{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]},{"role":"assistant","content":null,"refusal":"Never."},
			{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"output_text","text":"b"}],"refusal":null}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "assistant", Content: "No."}, {Role: "assistant", Content: "Never."}, {Role: "user", Content: "a\nb"}}
		}},
		{"functions from before there were tools are calls and results", `{"messages":[
			{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}},{"role":"function","name":"f","content":"42"}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{
				{Role: "assistant", ToolCalls: json.RawMessage(`[{"id":"call_f","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]`)},
				{Role: "tool", Name: "f", ToolCallID: "call_f", Content: "42"},
			}
		}},
		{"arguments that a model wrote wrongly end no conversation", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":"}},{"function":{"name":"f","arguments":"[1]"}}]}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"{\"a\":"},"id":"call00001","type":"function"},{"function":{"name":"f","arguments":"[1]"},"id":"call00002","type":"function"}]`)}}
		}},
		{"calls and results without ids get ids in their order", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}}]},{"role":"tool","content":"1"},{"role":"tool","content":"2"}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{
				{Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":{}},"id":"call00001","type":"function"},{"function":{"name":"g","arguments":{}},"id":"call00002","type":"function"}]`)},
				{Role: "tool", ToolCallID: "call00001", Content: "1"}, {Role: "tool", ToolCallID: "call00002", Content: "2"},
			}
		}},
		{"the last answer can be continued", `{"continue_final_message":true,"add_generation_prompt":false,"messages":[{"role":"assistant","content":"Once"}]}`, func(r *infer.Request) {
			r.Continue = true
			r.Messages = []chat.Message{{Role: "assistant", Content: "Once"}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			engine, asked := captured()
			got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", tc.body)
			if got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			want := infer.DefaultRequest()
			want.Messages, want.ParseReply, want.WholeCalls = user, true, true
			tc.want(&want)
			if !reflect.DeepEqual(*asked, want) {
				t.Errorf("the engine was asked\n%+v\nwant\n%+v", *asked, want)
			}
		})
	}
}

func TestCompletionsLeaveToTheModelWhatTheyDoNotSet(t *testing.T) {
	var asked infer.Request
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		asked = r
		return handlerstest.Replay(handlerstest.WordEvent(1, "Hi"), handlerstest.DoneEvent(infer.FinishStop))
	}}
	s := handlerstest.Server(t, engine)
	set := `"temperature":0,"top_k":-1,"typ_p":0.5,"min_p":null,"samplers":["top_k"]`
	for path, body := range map[string]string{"/v1/chat/completions": chatBody(set), "/v1/completions": `{"prompt":"a",` + set + `}`} {
		if got := handlerstest.Post(t, s, path, body); got.Status != http.StatusOK {
			t.Fatalf("got %d: %s", got.Status, got.Body)
		}
		want := slices.DeleteFunc(sample.SuggestionNames(), func(name string) bool {
			return slices.Contains([]string{"temperature", "top_k", "typical_p", "samplers"}, name)
		})
		slices.Sort(want)
		slices.Sort(asked.Unset)
		if !slices.Equal(asked.Unset, want) {
			t.Errorf("%s leaves %q to the model, want %q", path, asked.Unset, want)
		}
		if p := asked.Params; p.Temperature != 0 || p.TopK != 0 || p.TypicalP != 0.5 || p.MinP != sample.DefaultParams().MinP {
			t.Errorf("%s asks with %+v", path, p)
		}
	}
}

// Every refusal names its field in param and in the text.
func TestChat_RefusedFields(t *testing.T) {
	for _, tc := range []struct{ name, body, param, says string }{
		{"no messages", `{}`, "messages", "at least one"},
		{"messages that are no array", `{"messages":"hi"}`, "messages", "an array"},
		{"an unknown role", `{"messages":[{"role":"user","content":"a"},{"role":"robot","content":"b"}]}`, "messages[1].role", `"robot"`},
		{"content that is a number", `{"messages":[{"role":"user","content":5}]}`, "messages[0].content", "a string"},
		{"an image elsewhere", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://example.com/a.png"}}]}]}`, "messages[0].content[0].image_url.url", "must be a data: URL"},
		{"an image that is not in base64", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png,a"}}]}]}`, "messages[0].content[0].image_url.url", "base64"},
		{"an image of the assistant", `{"messages":[{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]}`, "messages[0].content[0]", "the model cannot see images"},
		{"audio", `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}`, "messages[0].content[0]", "the model cannot hear audio"},
		{"a part of unknown type", `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, "messages[0].content[0].type", `"smell"`},
		{"a part whose text is a number", `{"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}`, "messages[0].content[0].text", "a string"},
		{"tool calls that are no array", `{"messages":[{"role":"assistant","tool_calls":{}}]}`, "messages[0].tool_calls", "an array"},
		{"a temperature in words", chatBody(`"temperature":"abc"`), "temperature", "must be a number, not a string"},
		{"a temperature that is an array", chatBody(`"temperature":[1]`), "temperature", "must be a number, not an array"},
		{"NaN", chatBody(`"temperature":NaN`), "temperature", "finite numbers only"},
		{"Infinity", chatBody(`"top_p":Infinity`), "top_p", "finite numbers only"},
		{"a temperature below 0", chatBody(`"temperature":-0.1`), "temperature", "from 0"},
		{"a temperature too large for a number", chatBody(`"temperature":1e999`), "temperature", "must be a number, not 1e999"},
		{"top_p above 1", chatBody(`"top_p":1.01`), "top_p", "from 0 to 1"},
		{"a negative min_p", chatBody(`"min_p":-1`), "min_p", "from 0 to 1"},
		{"typical_p above 1", chatBody(`"typical_p":2`), "typical_p", "from 0 to 1"},
		{"a stage that there is not", chatBody(`"samplers":["top_q"]`), "samplers", "top_k"},
		{"stages as letters", chatBody(`"samplers":"kypmt"`), "samplers", "an array"},
		{"the first mirostat", chatBody(`"mirostat":1`), "mirostat", "0 (off) or 2"},
		{"both names of banned strings", chatBody(`"banned_strings":["a"],"banned_tokens":["b"]`), "banned_tokens", "one field"},
		{"a banned string that is a number", chatBody(`"banned_strings":[7]`), "banned_strings[0]", "a string"},
		{"a negative top_k", chatBody(`"top_k":-2`), "top_k", "from 0"},
		{"a fractional top_k", chatBody(`"top_k":1.5`), "top_k", "a whole number"},
		{"a repeat_penalty of 0", chatBody(`"repeat_penalty":0`), "repeat_penalty", "from 0.01"},
		{"a repeat_last_n below -1", chatBody(`"repeat_last_n":-2`), "repeat_last_n", "from -1"},
		{"a huge presence_penalty", chatBody(`"presence_penalty":1e30`), "presence_penalty", "to 100"},
		{"a huge frequency_penalty", chatBody(`"frequency_penalty":-1e30`), "frequency_penalty", "to 100"},
		{"a seed beyond 64 bits", chatBody(`"seed":99999999999999999999`), "seed", "a whole number"},
		{"max_tokens below -1", chatBody(`"max_tokens":-2`), "max_tokens", "from -1"},
		{"max_tokens in words", chatBody(`"max_tokens":"ten"`), "max_tokens", "a whole number from -1"},
		{"max_completion_tokens below -1", chatBody(`"max_completion_tokens":-5`), "max_completion_tokens", "from -1"},
		{"no answers at all", chatBody(`"n":0`), "n", "from 1 to 128"},
		{"too many answers", chatBody(`"n":129`), "n", "from 1 to 128"},
		{"too many alternatives", chatBody(`"logprobs":true,"top_logprobs":21`), "top_logprobs", "from 0 to 20"},
		{"alternatives without logprobs", chatBody(`"top_logprobs":1`), "top_logprobs", "logprobs"},
		{"logprobs as a number", chatBody(`"logprobs":5`), "logprobs", "true or false"},
		{"a bias for a word", chatBody(`"logit_bias":{"hello":1}`), "logit_bias", `"hello"`},
		{"a bias for a negative id", chatBody(`"logit_bias":{"-4":1}`), "logit_bias", "-4"},
		{"a bias in words", chatBody(`"logit_bias":{"5":"x"}`), "logit_bias.5", "a number"},
		{"a bias out of range", chatBody(`"logit_bias":{"5":1e6}`), "logit_bias", "1000"},
		{"stop as a number", chatBody(`"stop":1`), "stop", "a string or an array"},
		{"a stop string that is a number", chatBody(`"stop":["a",1]`), "stop[1]", "a string"},
		{"an unknown form", chatBody(`"response_format":{"type":"xml"}`), "response_format.type", "json_object or json_schema"},
		{"a form that is no object", chatBody(`"response_format":"json"`), "response_format", "an object"},
		{"a form without its schema", chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`), "response_format.json_schema.schema", "missing"},
		{"two forms", chatBody(`"response_format":{"type":"json_object"},"grammar":"root ::= \"a\""`), "response_format", "exclude each other"},
		{"a grammar that is an object", chatBody(`"grammar":{}`), "grammar", "a string"},
		{"tools that are no array", chatBody(`"tools":{}`), "tools", "an array"},
		{"a tool that is no object", chatBody(`"tools":[1]`), "tools[0]", "an object"},
		{"a tool of another type", chatBody(`"tools":[{"type":"web_search"}]`), "tools[0].type", "must be function or custom"},
		{"a tool without a function", chatBody(`"tools":[{"type":"function"}]`), "tools[0].function", "missing"},
		{"a tool without a name", chatBody(`"tools":[{"type":"function","function":{}}]`), "tools[0].function.name", "letters"},
		{"a tool with a name that is none", chatBody(`"tools":[{"type":"function","function":{"name":"a b"}}]`), "tools[0].function.name", "letters"},
		{"a tool with a long name", chatBody(`"tools":[{"type":"function","function":{"name":"` + strings.Repeat("a", 129) + `"}}]`), "tools[0].function.name", "1 to 128"},
		{"a description that is no text", chatBody(`"tools":[{"type":"function","function":{"name":"f","description":1}}]`), "tools[0].function.description", "a string"},
		{"parameters that are no schema", chatBody(`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`), "tools[0].function.parameters", "an object"},
		{"two tools of one name", chatBody(`"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]`), "tools[1].function.name", "another tool"},
		{"too many tools", chatBody(`"tools":[` + strings.Repeat(`{},`, 128) + `{}]`), "tools", "at most 128"},
		{"a call without tools", chatBody(`"tool_choice":"required"`), "tool_choice", "tools is empty"},
		{"a call of a tool that is not there", chatBody(`"tool_choice":{"type":"function","function":{"name":"g"}},` + oneTool), "tool_choice", "not among the tools"},
		{"a choice that is none", chatBody(`"tool_choice":"always",` + oneTool), "tool_choice", "required"},
		{"a choice without a name", chatBody(`"tool_choice":{"type":"function"},` + oneTool), "tool_choice", "required"},
		{"calls without a name", `{"messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}`, "messages[0].tool_calls[0].function.name", "missing"},
		{"arguments that are a number", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}]}`, "messages[0].tool_calls[0].function.arguments", "a JSON object"},
		{"arguments that nest for ever", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"` + strings.Repeat("[", 65) + `"}}]}]}`, "messages[0].tool_calls[0].function.arguments", "too deep"},
		{"a function_call without a name", `{"messages":[{"role":"assistant","function_call":{"arguments":"{}"}}]}`, "messages[0].tool_calls[0].function.name", "missing"},
		{"a function_call that is no object", `{"messages":[{"role":"assistant","function_call":"f"}]}`, "messages[0].function_call", "an object"},
		{"continuing the user", chatBody(`"continue_final_message":true`), "continue_final_message", `"user"`},
		{"continuing and opening", `{"continue_final_message":true,"add_generation_prompt":true,"messages":[{"role":"assistant","content":"a"}]}`, "continue_final_message", "exclude"},
		{"streaming as a word", chatBody(`"stream":"yes"`), "stream", "true or false"},
		{"a model that is a number", chatBody(`"model":1`), "model", "a string"},
		{"a body cut off in a field", `{"messages":[{"role":"user","content":"a`, "messages[0].content", "not valid JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
				t.Error("the engine was asked")
				return handlerstest.Replay(handlerstest.DoneEvent(infer.FinishStop))
			}}
			got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", tc.body)
			e := parseError(t, got)
			if got.Status != http.StatusBadRequest || e.Type != "invalid_request_error" || e.Code != "invalid_request" {
				t.Errorf("got %d, type %v, code %v: %s", got.Status, e.Type, e.Code, got.Body)
			}
			if e.Param == nil || *e.Param != tc.param {
				t.Errorf("param is not %q: %s", tc.param, got.Body)
			}
			field, _, _ := strings.Cut(tc.param, ".")
			if !strings.Contains(e.Message, tc.says) || !strings.Contains(e.Message, field) {
				t.Errorf("the message does not say %q of %q: %s", tc.says, field, e.Message)
			}
		})
	}
}

func parseError(t *testing.T, got handlerstest.Response) failure.Fields {
	t.Helper()
	var body failure.Body
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil || body.Error.Message == "" {
		t.Fatalf("the body has no error: %s", got.Body)
	}
	return body.Error
}

// Headers go out with the first event, long before the first token; while nothing
// happens the client is told so.
func TestChat_SlowEngineKeepsTheStreamAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
			return func(yield func(infer.Event, error) bool) {
				if !yield(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1}}, nil) {
					return
				}
				time.Sleep(25 * time.Second)
				_ = yield(handlerstest.WordEvent(1, "Hi"), nil) && yield(handlerstest.DoneEvent(infer.FinishStop), nil)
			}
		}}
		got := serveInMemory(t, handlers.New(handlerstest.TestConfig(t, engine)), chatBody(`"stream":true`))
		_, comments := sseData(t, got)
		if want := []string{"queued 1", "ping", "ping"}; !reflect.DeepEqual(comments, want) {
			t.Errorf("comments are %q, want %q", comments, want)
		}
	})
}
