package handlers_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// calling is an engine that thinks, says something and calls two tools.
func calling(text string) *handlerstest.FakeEngine {
	return &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		token := func(text, reasoning string, calls ...reply.CallDelta) infer.Event {
			e := handlerstest.WordEvent(1, text)
			e.Token.Reasoning, e.Token.Calls = reasoning, calls
			return e
		}
		done := handlerstest.DoneEvent(infer.FinishCalls)
		done.Done.Usage.ReasoningTokens = 1
		done.Done.Calls = []reply.CallDelta{{Index: 1, Arguments: "}"}}
		return handlerstest.Replay(
			token("", "Hm."), token(text, ""),
			token("", "", reply.CallDelta{ID: "a", Name: "f", Arguments: `{"x"`}),
			token("", "", reply.CallDelta{Arguments: `:1}`}, reply.CallDelta{Index: 1, ID: "b", Name: "g", Arguments: "{"}),
			done)
	}}
}

const headOf = `"model":"guide","system_fingerprint":"m40-llm-test"`

func TestChat_CallsOfTools(t *testing.T) {
	const calls = `[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`
	for _, c := range []struct{ name, text, content string }{
		{"text in front of the calls", "Let me look.", `"Let me look."`},
		{"content is null where there are calls alone", "", "null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, calling(c.text)), "/v1/chat/completions", hello)
			var body struct {
				Choices json.RawMessage
				Usage   json.RawMessage
			}
			if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, string(body.Choices), `[{"index":0,"message":{"role":"assistant","content":`+c.content+`,"reasoning_content":"Hm.","reasoning":"Hm.","tool_calls":`+calls+`},"logprobs":null,"finish_reason":"tool_calls"}]`)
			sameJSON(t, string(body.Usage), `{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":1}}`)
		})
	}
	t.Run("an answer without calls and text is empty text", func(t *testing.T) {
		engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			return handlerstest.Replay(handlerstest.DoneEvent(infer.FinishStop))
		}}
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", hello)
		var body struct{ Choices json.RawMessage }
		if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, string(body.Choices), `[{"index":0,"message":{"role":"assistant","content":""},"logprobs":null,"finish_reason":"stop"}]`)
	})
	t.Run("a stream tells them as they come", func(t *testing.T) {
		got := handlerstest.Post(t, handlerstest.Server(t, calling("Let me look.")), "/v1/chat/completions", chatBody(`"stream":true`))
		data, _ := sseData(t, got.Body)
		want := []string{
			`{"role":"assistant","content":""}`,
			`{"reasoning_content":"Hm.","reasoning":"Hm."}`,
			`{"content":"Let me look."}`,
			`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}]}`,
			`{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}`,
			`{}`,
		}
		if len(data) != len(want)+1 {
			t.Fatalf("the stream has %d events, want %d and [DONE]: %s", len(data), len(want), got.Body)
		}
		for i, delta := range want {
			reason := "null"
			if i == len(want)-1 {
				reason = `"tool_calls"`
			}
			sameJSON(t, data[i], `{"object":"chat.completion.chunk",`+headOf+`,"choices":[{"index":0,"delta":`+delta+`,"logprobs":null,"finish_reason":`+reason+`}]}`)
		}
	})
}

func TestChat_CallsAreToldWholeUnlessTheyAreStreamed(t *testing.T) {
	for fields, want := range map[string]bool{`"stream":false`: true, `"stream":true`: false} {
		engine, asked := captured()
		handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(fields))
		if !asked.ParseReply || asked.WholeCalls != want {
			t.Errorf("%s: the engine was asked %+v", fields, asked)
		}
	}
}
