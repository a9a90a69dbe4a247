package handlers_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/handlers/api"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
)

// The routes over the real engine and the built-in model.
func TestRealEngine(t *testing.T) {
	engine := handlerstest.OpenGuide(t)
	s := handlerstest.Server(t, engine)
	defer s.Close()

	const conversation = `"messages":[{"role":"system","content":"Be short."},{"role":"user","content":"What is a token?"}]`
	const settings = `"temperature":0,"max_tokens":6`
	var whole api.ChatResponse

	t.Run("a chat completion says the same in one response and in a stream", func(t *testing.T) {
		got := handlerstest.Post(t, s, "/v1/chat/completions", `{`+conversation+`,`+settings+`,"logprobs":true,"top_logprobs":3}`)
		mustDecode(t, got, &whole)
		c := whole.Choices[0]
		if c.Message.Content == nil || *c.Message.Content == "" || whole.Usage.CompletionTokens == 0 || whole.Usage.PromptTokens == 0 {
			t.Fatalf("got %s", got.Body)
		}
		for _, token := range c.LogProbs.Content {
			if len(token.Top) != 3 || token.LogProb != token.Top[0].LogProb || token.LogProb > 0 {
				t.Errorf("at temperature 0 the token is not the likeliest: %+v", token)
			}
		}
		stream := handlerstest.Post(t, s, "/v1/chat/completions", `{`+conversation+`,`+settings+`,"stream":true}`)
		data, _ := sseData(t, stream.Body)
		text := ""
		for _, d := range data[:len(data)-1] {
			var chunk api.ChatChunk
			if err := json.Unmarshal([]byte(d), &chunk); err != nil {
				t.Fatal(err)
			}
			if content := chunk.Choices[0].Delta.Content; content != nil {
				text += *content
			}
		}
		if text != *c.Message.Content {
			t.Errorf("the stream says %q, the response %q", text, *c.Message.Content)
		}
	})

	t.Run("the rendered prompt as a text completion continues the same way", func(t *testing.T) {
		var rendered api.RenderedTemplate
		mustDecode(t, handlerstest.Post(t, s, "/apply-template", `{`+conversation+`}`), &rendered)
		ids, _ := json.Marshal(rendered.Tokens)
		var byIDs api.Completion
		mustDecode(t, handlerstest.Post(t, s, "/v1/completions", fmt.Sprintf(`{"prompt":%s,%s}`, ids, settings)), &byIDs)
		if byIDs.Choices[0].Text != *whole.Choices[0].Message.Content || byIDs.Usage.PromptTokens != len(rendered.Tokens) {
			t.Errorf("got %q after %d tokens, want %q", byIDs.Choices[0].Text, byIDs.Usage.PromptTokens, *whole.Choices[0].Message.Content)
		}
		var closed api.RenderedTemplate
		mustDecode(t, handlerstest.Post(t, s, "/apply-template", `{`+conversation+`,"add_generation_prompt":false}`), &closed)
		if !strings.HasPrefix(rendered.Prompt, closed.Prompt) || len(closed.Prompt) >= len(rendered.Prompt) {
			t.Errorf("without the generation prompt %q becomes %q", rendered.Prompt, closed.Prompt)
		}
	})

	t.Run("text makes a round trip through tokens", func(t *testing.T) {
		const text = "A token is a piece of text: naïve, 日本, 🙂."
		var tokens struct{ Tokens []int32 }
		mustDecode(t, handlerstest.Post(t, s, "/tokenize", `{"content":"`+text+`"}`), &tokens)
		ids, _ := json.Marshal(tokens.Tokens)
		var back struct{ Content string }
		mustDecode(t, handlerstest.Post(t, s, "/detokenize", `{"tokens":`+string(ids)+`}`), &back)
		if back.Content != text {
			t.Errorf("got %q", back.Content)
		}
	})

	t.Run("a prompt is scored as it was written", func(t *testing.T) {
		var wrote, scored api.Completion
		mustDecode(t, handlerstest.Post(t, s, "/v1/completions", `{"prompt":"The model reads","temperature":0,"max_tokens":4,"logprobs":2,"return_tokens_as_token_ids":true}`), &wrote)
		var ids []int32
		var prompt struct{ Tokens []int32 }
		mustDecode(t, handlerstest.Post(t, s, "/tokenize", `{"content":"The model reads","add_special":true}`), &prompt)
		ids = append(ids, prompt.Tokens...)
		for _, name := range wrote.Choices[0].LogProbs.Tokens {
			var id int32
			if _, err := fmt.Sscanf(name, "token_id:%d", &id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		list, _ := json.Marshal(ids)
		mustDecode(t, handlerstest.Post(t, s, "/v1/completions", fmt.Sprintf(`{"prompt":[%s],"echo":true,"max_tokens":0,"logprobs":2,"return_tokens_as_token_ids":true}`, list)), &scored)
		l, w := scored.Choices[0].LogProbs, wrote.Choices[0].LogProbs
		tail := len(l.Tokens) - len(w.Tokens)
		if len(l.Tokens) != len(ids) || l.LogProbs[0] != nil || l.Top[0] != nil {
			t.Fatalf("%d tokens are scored, want %d, the first without a score: %+v", len(l.Tokens), len(ids), l)
		}
		if !reflect.DeepEqual(l.Tokens[tail:], w.Tokens) || !reflect.DeepEqual(l.LogProbs[tail:], w.LogProbs) || !reflect.DeepEqual(l.Top[tail:], w.Top) {
			t.Errorf("scored\n%s\nwritten\n%s", indent(l), indent(w))
		}
	})

	t.Run("a prompt is scored with a hundred alternatives", func(t *testing.T) {
		var scored api.Completion
		mustDecode(t, handlerstest.Post(t, s, "/v1/completions", `{"prompt":"The model reads","echo":true,"max_tokens":1,"logprobs":100,"return_tokens_as_token_ids":true}`), &scored)
		for i, top := range scored.Choices[0].LogProbs.Top {
			if i > 0 && len(top) < 100 {
				t.Errorf("token %d has %d alternatives", i, len(top))
			}
		}
	})

	t.Run("of several answers the likeliest is the best", func(t *testing.T) {
		mean := func(c api.CompletionChoice) (sum float64) {
			for _, p := range c.LogProbs.LogProbs {
				sum += *p
			}
			return sum / float64(len(c.LogProbs.LogProbs))
		}
		const ask = `{"prompt":"The model","temperature":1.5,"max_tokens":5,"seed":7,"logprobs":0,`
		var all, best api.Completion
		mustDecode(t, handlerstest.Post(t, s, "/v1/completions", ask+`"n":4}`), &all)
		mustDecode(t, handlerstest.Post(t, s, "/v1/completions", ask+`"best_of":4}`), &best)
		want := slices.MaxFunc(all.Choices, func(a, b api.CompletionChoice) int { return cmp.Compare(mean(a), mean(b)) })
		if len(best.Choices) != 1 || best.Choices[0].Text != want.Text || best.Usage.CompletionTokens != all.Usage.CompletionTokens {
			t.Errorf("got %+v, want %q", best, want.Text)
		}
	})

	t.Run("a seed gives the same answers again, whatever runs beside them", func(t *testing.T) {
		ask := `{` + conversation + `,"temperature":1.5,"max_tokens":5,"seed":7,"n":3}`
		var first, second api.ChatResponse
		mustDecode(t, handlerstest.Post(t, s, "/v1/chat/completions", ask), &first)
		mustDecode(t, handlerstest.Post(t, s, "/v1/chat/completions", ask), &second)
		if !reflect.DeepEqual(first.Choices, second.Choices) {
			t.Errorf("got %+v, then %+v", first.Choices, second.Choices)
		}
	})

	t.Run("a conversation that does not fit is refused with the numbers", func(t *testing.T) {
		got := handlerstest.Post(t, s, "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"`+strings.Repeat("many words ", 4000)+`"}]}`)
		e := parseError(t, got)
		if got.Status != http.StatusBadRequest || e.Code != "context_length_exceeded" || e.ContextLength == 0 || e.PromptTokens <= e.ContextLength ||
			!strings.Contains(e.Message, fmt.Sprintf("maximum context length is %d tokens", e.ContextLength)) || strings.Contains(e.Message, "--ctx") {
			t.Errorf("got %d: %s", got.Status, got.Body)
		}
	})

	t.Run("an unknown model is not found", func(t *testing.T) {
		if got := handlerstest.Post(t, s, "/v1/chat/completions", `{"model":"gpt-9",`+conversation+`}`); got.Status != http.StatusNotFound || parseError(t, got).Code != "model_not_found" {
			t.Errorf("got %d: %s", got.Status, got.Body)
		}
	})
}

func mustDecode(t *testing.T, got handlerstest.Response, dst any) {
	t.Helper()
	if got.Status != http.StatusOK {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if err := json.Unmarshal([]byte(got.Body), dst); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
}

// Sixteen people ask at once, each with a seed of their own, while somebody follows one
// of the chats and takes nothing. Each gets the text that the seed gives alone.
func TestRealEngine_SixteenChatsAtOnce(t *testing.T) {
	server := handlerstest.Serve(t, handlerstest.OpenGuide(t))
	questions := []string{"Tell me a story about a fox.", "What is top-p?", "Write a poem about the sea.", "Who are you?"}
	ask := func(c *handlerstest.SocketClient, i int) {
		c.Do("send", map[string]any{
			"text":     questions[i%len(questions)],
			"settings": map[string]any{"temperature": 1, "top_p": 1, "min_p": 0, "top_k": 0, "seed": 100 + i, "max_tokens": 96},
		})
	}
	finish := func(c *handlerstest.SocketClient) (string, error) {
		for !c.Ended() {
			if _, err := c.Read(); err != nil {
				return "", err
			}
		}
		return c.Last().Text, nil
	}

	const chats = 16
	clients := make([]*handlerstest.SocketClient, chats)
	for i := range clients {
		clients[i] = handlerstest.DialSocket(t, server)
	}
	ask(clients[0], 0)
	clients[0].Until("the chat", func() bool { return clients[0].Chat != "" })
	stalled := handlerstest.DialSocket(t, server, smallBuffers(t))
	stalled.Do("open", map[string]any{"chat": clients[0].Chat})
	for i := 1; i < chats; i++ {
		ask(clients[i], i)
	}
	texts := make([]string, chats)
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			var err error
			if texts[i], err = finish(c); err != nil {
				t.Errorf("chat %d did not end: %v", i, err)
			}
		})
	}
	all.Wait()

	for i, text := range texts {
		c := handlerstest.DialSocket(t, server)
		ask(c, i)
		alone, err := finish(c)
		if err != nil {
			t.Fatal(err)
		}
		if end := c.Last().End; end.State != live.Done || end.Settings.Seed != int64(100+i) {
			t.Errorf("chat %d alone ended as %q with seed %d", i, end.State, end.Settings.Seed)
		}
		if text == "" || text != alone {
			t.Errorf("chat %d got %q beside others and %q alone", i, text, alone)
		}
	}
}
