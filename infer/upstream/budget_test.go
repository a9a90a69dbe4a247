package upstream

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"m40-llm/infer"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestWhatAServerSendsIsChargedAndWhatNobodyAskedForIsNotDecoded(t *testing.T) {
	entries := func(n int, one string) string {
		return `{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]}}]}`
	}
	flood := func(chunk string, n int) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range n {
				if _, err := io.WriteString(w, "data: "+chunk+"\n\n"); err != nil {
					return
				}
			}
			stream(w, stopChunk, "[DONE]")
		}
	}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, map[string]any)
		change func(r *infer.Request)
		says   string // of the error; empty: none
		most   uint64 // bytes that are allocated
	}{
		{"300,000 empty entries that nobody asked for", flood(entries(300_000, "{}"), 16), func(*infer.Request) {}, "", 200 << 20},
		{"300,000 empty entries in an event", flood(entries(300_000, "{}"), 16), func(r *infer.Request) { r.Alternatives = 1 }, "more than 1024 tokens in one part", 60 << 20},
		{"entries without end", flood(entries(1000, "{}"), 1000), func(r *infer.Request) { r.Alternatives, r.MaxTokens = 1, 100 }, "more than an answer to this request can have", 600 << 20},
		{"100,000 alternatives", flood(entries(1, `{"token":"x","top_logprobs":[`+strings.TrimSuffix(strings.Repeat("{},", 100_000), ",")+`]}`), 4), func(r *infer.Request) { r.Alternatives = 1 }, "more than 1024 tokens in one part", 60 << 20},
		{"a token of 20,000 bytes", flood(entries(1, `{"token":"x","bytes":[`+strings.TrimSuffix(strings.Repeat("1,", 20_000), ",")+`]}`), 4), func(r *infer.Request) { r.Alternatives = 1 }, "a token of more than 4096 bytes", 60 << 20},
		{"an alternative of 20,000 bytes", flood(entries(1, `{"token":"x","top_logprobs":[{"token":"`+strings.Repeat("y", 20_000)+`"}]}`), 4), func(r *infer.Request) { r.Alternatives = 1 }, "a token of more than 4096 bytes", 60 << 20},
		{"340,000 choices", flood(`{"choices":[`+strings.TrimSuffix(strings.Repeat("{},", 340_000), ",")+`]}`, 4), func(*infer.Request) {}, "more than 1024 choices or calls", 60 << 20},
		{"340,000 calls", flood(`{"choices":[{"delta":{"tool_calls":[`+strings.TrimSuffix(strings.Repeat("{},", 340_000), ",")+`]}}]}`, 4), func(*infer.Request) {}, "more than 1024 choices or calls", 60 << 20},
		{"comments without end", flood(`{"choices":[]}`+"\n:"+strings.Repeat(" ", 1<<19), 400), func(r *infer.Request) { r.MaxTokens = 1 }, "more than an answer to this request can have", 600 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t, c.answer)
			r := routerTo(t, s)
			r.o.Pauses = nil // one try
			asked := question("Hi")
			c.change(&asked)
			var got written
			used := allocated(func() { got = write(t, r, asked) })
			t.Logf("%d MB were allocated", used>>20)
			if _, text := got.code(); (got.err == nil) != (c.says == "") || c.says != "" && !strings.Contains(text, c.says) {
				t.Errorf("got %v", got.err)
			}
			if used > c.most {
				t.Errorf("%d MB were allocated", used>>20)
			}
		})
	}
}

func TestWhatAnotherM40SendsIsCharged(t *testing.T) {
	token := func(more string) string {
		return `{"type":"token","token":{"id":1,"logprob":-1,"text":"x"` + more + `}}` + "\n"
	}
	const done = `{"type":"done","done":{}}` + "\n"
	big := base64.StdEncoding.EncodeToString(make([]byte, 2<<20))
	for _, c := range []struct {
		name, body string
		says       string
		most       uint64
	}{
		{"20 tokens of 2 MiB", strings.Repeat(token(`,"bytes":"`+big+`"`), 20) + done, "the bytes of a token", 100 << 20},
		{"an alternative of 2 MiB", token(`,"top":[{"id":1,"logprob":-1}],"top_bytes":["`+big+`"]`) + done, "the bytes of a token", 100 << 20},
		{"alternatives that nobody asked for", token(`,"top":[{"id":1,"logprob":-1}],"top_bytes":["eA=="]`) + done, "more alternatives than were asked for", 100 << 20},
		{"a row that nobody asked for", token(`,"row":"eA=="`) + done, "candidates that were not asked for", 100 << 20},
		{"a token of the prompt", token(`,"prompt":true`) + done, "a token of the prompt", 100 << 20},
		{"a log probability of -1e308", `{"type":"token","token":{"id":1,"logprob":-1e308,"text":"x"}}` + "\n" + done, "emits: a token", 100 << 20},
		{"one above 0", `{"type":"token","token":{"id":1,"logprob":1,"text":"x"}}` + "\n" + done, "emits: a token", 100 << 20},
		{"a call with the index -5", token(`,"calls":[{"index":-5,"name":"f"}]`) + done, "emits: a call", 100 << 20},
		{"the third call first", token(`,"calls":[{"index":2,"name":"f"}]`) + done, "emits: a call", 100 << 20},
		{"a call with a large index at the end", token("") + `{"type":"done","done":{"calls":[{"index":1000000000}]}}` + "\n", "no engine emits", 100 << 20},
		{"events without end", strings.Repeat(`{"type":"prefill","prefill":{}}`+"\n", 300_000), "more than an answer to this request can have", 2 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { io.WriteString(w, c.body) })
			s.extra = map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{},"model":{"name":"m"},"context_length":512}`}
			r := routerTo(t, s)
			r.o.Pauses = nil
			asked := question("Hi")
			asked.MaxTokens = 10
			var got written
			used := allocated(func() { got = write(t, r, asked) })
			t.Logf("%d MB were allocated", used>>20)
			if _, text := got.code(); !strings.Contains(text, c.says) || used > c.most {
				t.Errorf("got %v; %d MB were allocated", got.err, used>>20)
			}
		})
	}
}

func TestListsOfAServerTakeNoMoreMemoryThanWhatWasAskedFor(t *testing.T) {
	empty := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	for _, c := range []struct {
		name   string
		decode func() error
	}{
		{"models", func() error {
			return new(listed[struct{ ID, OwnedBy, Quant, License string }]).UnmarshalJSON([]byte(empty(1_000_000)))
		}},
		{"embeddings", func() error { return new(few[struct{ Embedding numbers }]).UnmarshalJSON([]byte(empty(1_000_000))) }},
	} {
		used := allocated(func() {
			if err := c.decode(); err != nil && !errors.Is(err, errMany) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		if used > 20<<20 {
			t.Errorf("%s: %d MB were allocated", c.name, used>>20)
		}
	}
	for name, text := range map[string]string{"null": "null", "no array": `{"a":1}`, "none": "[]", "two": `[{"ID":"a"},{"ID":"b"}]`} {
		var got few[struct{ ID string }]
		if err := got.UnmarshalJSON([]byte(text)); err != nil || len(got) != map[string]int{"two": 2}[name] {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestTheBudgetOfAnAnswerIsThatOfWhatIsAskedFor(t *testing.T) {
	ask := func(change func(r *infer.Request)) *infer.Request {
		r := question("Hi")
		r.MaxTokens = 1000
		change(&r)
		return &r
	}
	plain := budget(ask(func(*infer.Request) {}), 4096)
	for name, c := range map[string]struct {
		change func(r *infer.Request)
		more   int
	}{
		"alternatives": {func(r *infer.Request) { r.Alternatives = 20 }, 1000 * 20 * perTop},
		"rows":         {func(r *infer.Request) { r.Rows = true }, 1000 * perRow},
		"no limit":     {func(r *infer.Request) { r.MaxTokens = -1 }, 3096 * perToken},
		"a high limit": {func(r *infer.Request) { r.MaxTokens = 1 << 20 }, 3096 * perToken},
	} {
		if got := budget(ask(c.change), 4096); got != plain+c.more {
			t.Errorf("with %s it is %d more, want %d", name, got-plain, c.more)
		}
	}
	if got := budget(ask(func(r *infer.Request) { r.Alternatives, r.MaxTokens = 256, -1 }), 0); got != mostBudget {
		t.Errorf("the most is %s", fmt.Sprint(got))
	}
}
