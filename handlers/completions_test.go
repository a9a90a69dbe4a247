package handlers_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/api"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// The shapes are OpenAI's published ones, written down by hand.
func TestCompletions_ResponseShape(t *testing.T) {
	got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/completions", `{"prompt":"Say","model":"m"}`)
	sameJSON(t, got.Body, `{"object":"text_completion","model":"m","system_fingerprint":"m40-llm-test",
		"choices":[{"index":0,"text":"Hi","logprobs":null,"finish_reason":"stop"}],
		"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3}}}`)
}

func TestCompletions_StreamShape(t *testing.T) {
	got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/completions", `{"prompt":"Say","stream":true,"echo":true,"stream_options":{"include_usage":true}}`)
	data, _ := sseData(t, got.Body)
	const head = `"object":"text_completion","model":"guide","system_fingerprint":"m40-llm-test"`
	want := []string{
		`{` + head + `,"choices":[{"index":0,"text":"Say","logprobs":null,"finish_reason":null}]}`,
		`{` + head + `,"choices":[{"index":0,"text":"Hi","logprobs":null,"finish_reason":null}]}`,
		`{` + head + `,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}`,
		`{` + head + `,"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3}}}`,
	}
	if len(data) != len(want)+1 || data[len(want)] != "[DONE]" {
		t.Fatalf("got %d events: %s", len(data), got.Body)
	}
	for i := range want {
		sameJSON(t, data[i], want[i])
	}
}

// scored is an answer to a prompt of three tokens, "ab" and both halves of "é",
// with one token written.
func scored() iter.Seq2[infer.Event, error] {
	first := promptEvent(handlerstest.WordEvent(10, "ab"))
	first.Token.LogProb = 0
	half := promptEvent(scoredEvent(11, -1.5, "", sample.Candidate{ID: 1, LogProb: -0.5}))
	half.Token.Bytes = []byte{0xc3}
	rest := promptEvent(scoredEvent(12, -0.25, "", sample.Candidate{ID: 12, LogProb: -0.25}))
	rest.Token.Bytes = []byte{0xa9}
	rest.Token.Tops = [][]byte{{0xa9}}
	return handlerstest.Replay(first, half, rest, scoredEvent(2, -2, "c", sample.Candidate{ID: 3, LogProb: -0.75}), handlerstest.DoneEvent(infer.FinishLength))
}

const scoredLogProbs = `{
	"tokens":["token_id:10","token_id:11","token_id:12","token_id:2"],
	"token_logprobs":[null,-1.5,-0.25,-2],
	"top_logprobs":[null,{"token_id:1":-0.5,"token_id:11":-1.5},{"token_id:12":-0.25},{"token_id:3":-0.75,"token_id:2":-2}],
	"text_offset":[0,2,3,3]}`

// lm-evaluation-harness sends prompts as token ids, asks for their
// log-probabilities and one token, and reads exactly these lists.
func TestCompletions_ScoresThePrompt(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if !r.PromptLogProb || r.Alternatives != 1 || r.MaxTokens != 1 || !reflect.DeepEqual(r.Tokens, []int32{10, 11, 12}) {
			t.Errorf("the engine was asked %+v", r)
		}
		return scored()
	}}
	const body = `{"prompt":[[10,11,12]],"echo":true,"logprobs":1,"max_tokens":1,"temperature":0,"seed":1234,"return_tokens_as_token_ids":true`
	t.Run("in one response", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", body+`}`)
		var response struct {
			Choices []struct {
				Text     string
				LogProbs json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(got.Body), &response); err != nil || len(response.Choices) != 1 {
			t.Fatalf("got %s", got.Body)
		}
		if response.Choices[0].Text != "abéc" {
			t.Errorf("text is %q, want %q", response.Choices[0].Text, "abéc")
		}
		sameJSON(t, string(response.Choices[0].LogProbs), scoredLogProbs)
	})
	t.Run("in a stream, whose pieces make up the same", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", body+`,"stream":true}`)
		data, _ := sseData(t, got.Body)
		text := ""
		var all api.CompletionLogProbs
		for _, d := range data[:len(data)-1] {
			var chunk api.Completion
			if err := json.Unmarshal([]byte(d), &chunk); err != nil {
				t.Fatal(err)
			}
			c := chunk.Choices[0]
			text += c.Text
			if l := c.LogProbs; l != nil {
				all.Tokens, all.LogProbs = append(all.Tokens, l.Tokens...), append(all.LogProbs, l.LogProbs...)
				all.Top, all.TextOffset = append(all.Top, l.Top...), append(all.TextOffset, l.TextOffset...)
			}
		}
		joined, _ := json.Marshal(all)
		if text != "abéc" {
			t.Errorf("text is %q, want %q", text, "abéc")
		}
		sameJSON(t, string(joined), scoredLogProbs)
	})
}

func TestCompletions_ScoresThePromptAlone(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if r.MaxTokens != 0 || !r.PromptLogProb {
			t.Errorf("the engine was asked %+v", r)
		}
		return handlerstest.Replay(promptEvent(handlerstest.WordEvent(1, "a")), promptEvent(handlerstest.WordEvent(2, "b")), handlerstest.DoneEvent(infer.FinishLength))
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":"ab","echo":true,"logprobs":0,"max_tokens":0}`)
	var body api.Completion
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
		t.Fatal(err)
	}
	c := body.Choices[0]
	if c.Text != "ab" || !reflect.DeepEqual(c.LogProbs.Tokens, []string{"a", "b"}) || c.LogProbs.LogProbs[0] != nil || *c.LogProbs.LogProbs[1] != -0.5 {
		t.Errorf("got %s", got.Body)
	}
}

func TestCompletions_HundredAlternativesToEachTokenThatIsScored(t *testing.T) {
	s := handlerstest.Server(t, handlerstest.OpenGuide(t))
	var body api.Completion
	mustDecode(t, handlerstest.Post(t, s, "/v1/completions", `{"prompt":"The model answers","echo":true,"logprobs":100,"max_tokens":2,"ignore_eos":true,"temperature":0}`), &body)
	l := body.Choices[0].LogProbs
	if len(l.Top) < 4 || l.Top[0] != nil {
		t.Fatalf("the alternatives are %v", l.Top)
	}
	for i, top := range l.Top[1:] {
		if len(top) < 90 || len(top) > 101 { // tokens that read the same are listed once, and the one that was chosen always
			t.Errorf("token %d has %d alternatives", i+1, len(top))
		}
	}
}

func TestCompletions_TokensThatReadTheSame(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		e := scoredEvent(9, -4, "x", sample.Candidate{ID: 1, LogProb: -1}, sample.Candidate{ID: 2, LogProb: -2})
		e.Token.Tops = [][]byte{[]byte("x"), []byte("x")}
		return handlerstest.Replay(e, handlerstest.DoneEvent(infer.FinishStop))
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":"p","logprobs":2}`)
	if !strings.Contains(got.Body, `"top_logprobs":[{"x":-1}]`) {
		t.Errorf("the likeliest of the tokens that read x must be listed: %s", got.Body)
	}
}

func TestCompletions_ChoicesOfSeveralPrompts(t *testing.T) {
	engine := &handlerstest.FakeEngine{
		OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
			return handlerstest.Replay(handlerstest.WordEvent(1, string(rune('a'+r.Params.Seed))), handlerstest.DoneEvent(infer.FinishStop))
		},
		OnDetokenize: func(_ string, ids []int32) (string, error) { return map[int32]string{1: "one", 2: "two"}[ids[0]], nil },
	}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":[[1],[2]],"n":2,"seed":0,"echo":true}`)
	var body api.Completion
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"onea", "oneb", "twoa", "twob"} {
		if c := body.Choices[i]; c.Index != i || c.Text != want {
			t.Errorf("choice %d is %+v, want %q", i, c, want)
		}
	}
	if body.Usage.PromptTokens != 14 || body.Usage.CompletionTokens != 8 {
		t.Errorf("usage is %+v: each prompt counts once, each answer too", body.Usage)
	}
	stream := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":[[1],[2]],"n":2,"stream":true,"stream_options":{"include_usage":true}}`)
	if !strings.Contains(stream.Body, `"usage":{"prompt_tokens":14,"completion_tokens":8,"total_tokens":22,`) {
		t.Errorf("the stream counts otherwise: %s", stream.Body)
	}
}

// Of best_of answers those are returned whose tokens are the likeliest on average.
func TestCompletions_BestOf(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		good, bad := scoredEvent(1, -1, "g"), scoredEvent(1, -2, "b")
		switch r.Params.Seed {
		case 0: // the likeliest as a whole, being short
			return handlerstest.Replay(scoredEvent(1, -1.5, "short"), handlerstest.DoneEvent(infer.FinishStop))
		case 1:
			return handlerstest.Replay(good, good, good, handlerstest.DoneEvent(infer.FinishStop))
		case 2:
			return handlerstest.Replay(handlerstest.DoneEvent(infer.FinishStop))
		}
		return handlerstest.Replay(good, bad, handlerstest.DoneEvent(infer.FinishLength))
	}}
	for body, want := range map[string][]string{
		`{"prompt":"p","best_of":4,"seed":0}`:                         {"ggg"},
		`{"prompt":"p","best_of":4.0,"n":3,"seed":0}`:                 {"ggg", "short", "gb"},
		`{"prompt":["p","q"],"best_of":4,"n":2,"seed":0,"echo":true}`: {"pggg", "pshort", "qggg", "qshort"},
		`{"prompt":"p","best_of":3,"n":3,"seed":0}`:                   {"short", "ggg", ""},
	} {
		var got api.Completion
		mustDecode(t, handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", body), &got)
		var texts []string
		for i, c := range got.Choices {
			if c.Index != i {
				t.Errorf("%s: choice %d has the index %d", body, i, c.Index)
			}
			texts = append(texts, c.Text)
		}
		if !slices.Equal(texts, want) {
			t.Errorf("%s: got %q, want %q", body, texts, want)
		}
		if prompts := 1 + strings.Count(body, `"q"`); got.Usage.PromptTokens != 7*prompts || got.Usage.CompletionTokens < 6*prompts {
			t.Errorf("%s: usage is %+v: all answers that were written count", body, got.Usage)
		}
	}
}

func TestCompletions_Defaults(t *testing.T) {
	engine, asked := captured()
	handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":"p"}`)
	want := infer.DefaultRequest()
	want.Prompt, want.MaxTokens = "p", 16
	if !reflect.DeepEqual(*asked, want) {
		t.Errorf("the engine was asked %+v, want %+v", *asked, want)
	}
}

func TestCompletions_RefusedFields(t *testing.T) {
	for _, tc := range []struct{ name, body, param, says string }{
		{"no prompt", `{}`, "prompt", "a string, an array"},
		{"an empty array", `{"prompt":[]}`, "prompt", "empty array"},
		{"a number", `{"prompt":5}`, "prompt", "a string, an array"},
		{"a mixed array", `{"prompt":["a",1]}`, "prompt[1]", "a string"},
		{"a token id beyond 32 bits", `{"prompt":[1,4294967296]}`, "prompt[1]", "a whole number"},
		{"an empty list of ids", `{"prompt":[[1],[]]}`, "prompt", "prompt is empty"},
		{"an empty string", `{"prompt":""}`, "prompt", "prompt is empty"},
		{"best_of below n", `{"prompt":"a","best_of":2,"n":3}`, "best_of", "best_of is 2, but n is 3"},
		{"best_of above n in a stream", `{"prompt":"a","best_of":2,"stream":true}`, "best_of", "in a stream"},
		{"best_of of all prompts", `{"prompt":["a","b"],"best_of":65}`, "prompt", "130 answers"},
		{"a suffix", `{"prompt":"a","suffix":"b"}`, "suffix", "cannot fill in the middle"},
		{"too many alternatives", `{"prompt":"a","logprobs":101}`, "logprobs", "from 0 to 100"},
		{"logprobs as in a chat", `{"prompt":"a","logprobs":true}`, "logprobs", "from 0 to 100"},
		{"too many answers in all", `{"prompt":["a","b"],"n":65}`, "prompt", "130 answers"},
		{"a temperature in words", `{"prompt":"a","temperature":"abc"}`, "temperature", "a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/completions", tc.body)
			e := parseError(t, got)
			if got.Status != http.StatusBadRequest || e.Param == nil || *e.Param != tc.param || !strings.Contains(e.Message, tc.says) {
				t.Errorf("got %d, want 400 with param %q that says %q: %s", got.Status, tc.param, tc.says, got.Body)
			}
		})
	}
	t.Run("a token that the model has not is the prompt's", func(t *testing.T) {
		engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			return func(yield func(infer.Event, error) bool) {
				yield(infer.Event{}, &fault.Error{Code: fault.CodeInvalid, Param: "tokens", Message: "tokens: number 1 is 9"})
			}
		}}
		for _, body := range []string{`{"prompt":[9]}`, `{"prompt":[9],"stream":true}`} {
			e := parseError(t, handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", body))
			if e.Param == nil || *e.Param != "prompt" || e.Message != "prompt, tokens: number 1 is 9" {
				t.Errorf("%s: got %+v", body, e)
			}
		}
	})
	t.Run("too many alternatives for a long prompt are logprobs", func(t *testing.T) {
		engine := failingEngine(&fault.Error{Code: fault.CodeInvalid, Param: "alternatives", Message: "alternatives is 100: must be from 0 to 40"})
		e := parseError(t, handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":"a","logprobs":100,"echo":true}`))
		if e.Param == nil || *e.Param != "logprobs" || e.Message != "logprobs, alternatives is 100: must be from 0 to 40" {
			t.Errorf("got %+v", e)
		}
	})
	for _, body := range []string{`{"prompt":"a","best_of":2,"n":2,"stream":true}`, `{"prompt":"a","best_of":3,"n":2}`, `{"prompt":"a","suffix":""}`, `{"prompt":"a","suffix":null,"best_of":null}`} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/completions", body); got.Status != http.StatusOK {
			t.Errorf("%s: got %d: %s", body, got.Status, got.Body)
		}
	}
}
