package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// Clients recognise a prompt that is too long by words of the API that they call, or by the
// field that OpenAI's error names.
func TestContext_EachAPISaysInItsWordsThatAPromptIsTooLong(t *testing.T) {
	err := &fault.Error{Code: fault.CodeContext, PromptTokens: 9031, ContextLength: 8192}
	const openAI = "This model's maximum context length is 8192 tokens, but the prompt is too long: it has 9031 tokens; shorten it"
	const llama = "request (9031 tokens) exceeds the available context size (8192 tokens); shorten it"
	for _, c := range []struct{ path, body, says, param string }{
		{"/v1/chat/completions", hello, openAI, "messages"},
		{"/v1/completions", `{"prompt":"a"}`, openAI, "prompt"},
		{"/v1/responses", `{"input":"a"}`, openAI, "input"},
		{"/v1/messages", claudeHello + `}`, "prompt is too long: 9031 tokens > 8192 maximum; shorten it", ""},
		{"/api/chat", hello, "the input length exceeds the context length: the prompt has 9031 tokens, the context 8192; shorten it", ""},
		{"/api/generate", `{"prompt":"a"}`, "the input length exceeds the context length: the prompt has 9031 tokens, the context 8192; shorten it", ""},
		{"/completion", `{"prompt":"a"}`, llama, "prompt"},
	} {
		for name, engine := range map[string]*handlerstest.FakeEngine{"at once": failingEngine(err), "after the model was loaded": failingEngine(err, infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{}})} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, stream %t", c.path, name, stream), func(t *testing.T) {
					body := strings.TrimSuffix(c.body, "}") + fmt.Sprintf(`,"stream":%t}`, stream)
					got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, body)
					if !stream && got.Status != http.StatusBadRequest {
						t.Errorf("the status is %d", got.Status)
					}
					said, _ := json.Marshal(c.says)
					if !strings.Contains(strings.ReplaceAll(got.Body, `\u003e`, ">"), strings.ReplaceAll(string(said), `\u003e`, ">")) {
						t.Errorf("got %s, want %q", got.Body, c.says)
					}
					if c.param != "" && !strings.Contains(got.Body, fmt.Sprintf(`"param":%q`, c.param)) {
						t.Errorf("the error does not name %s: %s", c.param, got.Body)
					}
				})
			}
		}
	}
}

func TestContext_EachAPINamesThePartThatDoesNotFit(t *testing.T) {
	for part, says := range map[fault.Part]string{
		fault.PartSystem: "8800 of them are the system prompt: shorten that", fault.PartTools: "8800 of them are the definitions of the tools: offer fewer",
		fault.PartPictures: "8800 of them are pictures: send fewer", fault.PartHistory: "8800 of them are the messages before the last: leave out the oldest",
	} {
		err := &fault.Error{Code: fault.CodeContext, PromptTokens: 9031, ContextLength: 8192, Largest: part, LargestTokens: 8800}
		for path, body := range map[string]string{
			"/v1/chat/completions": hello, "/v1/responses": `{"input":"a"}`, "/v1/messages": claudeHello + `}`, "/api/chat": hello,
		} {
			if got := handlerstest.Post(t, handlerstest.Server(t, failingEngine(err)), path, body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, says) {
				t.Errorf("%s, %s: got %d: %s", path, part, got.Status, got.Body)
			}
		}
	}
}

func TestContext_AFullContextNeedsRoomAndUnknownNumbersAreNotGiven(t *testing.T) {
	full := failure.Describe(&fault.Error{Code: fault.CodeContext, PromptTokens: 128, ContextLength: 128})
	vague := failure.Describe(&fault.Error{Code: fault.CodeContext, Message: "far:1 “does not fit”"})
	for name, f := range map[string]failure.Failure{"full": full, "vague": vague} {
		for _, message := range []string{f.Body().Error.Message, f.Ollama().Error, f.Llama().Error.Message, f.Anthropic().Error.Message} {
			if name == "full" && !strings.Contains(message, "which leaves no room for an answer") || name == "vague" && (!strings.Contains(message, "far:1 “does not fit”") || strings.ContainsAny(message, "0%")) {
				t.Errorf("%s: %s", name, message)
			}
		}
	}
}
