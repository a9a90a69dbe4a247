package upstream

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
)

// raw hijacks the connection and writes bytes as they are.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	io.WriteString(conn, text)
}

// bomb returns a gzip file of a hundred megabytes of zeros.
func bomb() []byte {
	var file bytes.Buffer
	z := gzip.NewWriter(&file)
	zeros := make([]byte, 1<<20)
	for range 100 {
		z.Write(zeros)
	}
	z.Close()
	return file.Bytes()
}

func TestAServerThatBreaksTheContractEndsAnAnswerWithAnErrorOrIsReadAsFarAsItMakesSense(t *testing.T) {
	compressed := bomb()
	elsewhere := 0
	other := newStandIn(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		elsewhere++
		greets(w, r, nil)
	})
	hanging := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, body map[string]any)
		text   string // of the answer
		code   fault.Code
		says   string
		tries  int // requests; 0: one
	}{
		{name: "cut in the middle", text: "Hello", code: fault.CodeUpstream, says: "ended too early", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, roleChunk, word("Hello"))
		}},
		{name: "cut before the first word", code: fault.CodeUpstream, says: "ended too early", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { stream(w, roleChunk) }},
		{name: "a stall after the reason", text: "Hello", answer: func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			stream(w, word("Hello"), stopChunk)
			hanging(w, r)
		}},
		{name: "a connection that breaks after the reason", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), stopChunk)
			panic(http.ErrAbortHandler)
		}},
		{name: "an error object that refuses the request", code: fault.CodeInvalid, says: "top_k must be even", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, `{"error":{"message":"top_k must be even","type":"BadRequestError","code":400}}`, "[DONE]")
		}},
		{name: "a call with a long name", code: fault.CodeUpstream, says: "a call with a name or an id", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"`+strings.Repeat("f", maxName+1)+`"}}]}}]}`, stopChunk, "[DONE]")
		}},
		{name: "a call with a long id", code: fault.CodeUpstream, says: "a call with a name or an id", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"`+strings.Repeat("c", maxName+1)+`","function":{"name":"f"}}]}}]}`, stopChunk, "[DONE]")
		}},
		{name: "no [DONE]", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), stopChunk)
		}},
		{name: "[DONE] without a reason", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), "[DONE]")
		}},
		{name: "[DONE] alone", code: fault.CodeUpstream, says: "before its first word", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { stream(w, "[DONE]") }},
		{name: "an error object in the stream", text: "Hello", code: fault.CodeUpstream, says: "CUDA out of [31m memory", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), `{"error":{"message":"CUDA out of\u001b[31m memory","type":"x","code":500}}`, "[DONE]")
		}},
		{name: "429 with Retry-After of an hour", code: fault.CodeQueueFull, says: "slow down", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
			io.WriteString(w, `{"error":{"message":"slow down"}}`)
		}},
		{name: "503 for ever", code: fault.CodeUpstream, says: "503", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { http.Error(w, "busy", 503) }},
		{name: "HTML instead of JSON", code: fault.CodeUpstream, says: "text/html", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html><script>alert(1)</script>")
		}},
		{name: "an error as a web page", code: fault.CodeUpstream, says: "a web page", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(502)
			io.WriteString(w, "<html><body>Bad Gateway")
		}},
		{name: "a whole answer instead of a stream", code: fault.CodeUpstream, says: "application/json", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":[{"message":{"content":"Hello"}}]}`)
		}},
		{name: "a line of two megabytes", text: "Hello", code: fault.CodeUpstream, says: "a line of more than", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), word(strings.Repeat("x", 2<<20)))
		}},
		{name: "a line without an end", code: fault.CodeUpstream, says: "a line of more than", tries: 4, answer: func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "text/event-stream")
			for part := strings.Repeat("x", 64<<10); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, part); err != nil {
					return
				}
			}
		}},
		{name: "a stall after the first word", text: "Hello", code: fault.CodeUpstream, says: "nothing for too long", answer: func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			stream(w, word("Hello"))
			hanging(w, r)
		}},
		{name: "a stall before the response", code: fault.CodeUpstream, says: "nothing for too long", answer: func(_ http.ResponseWriter, r *http.Request, _ map[string]any) { <-r.Context().Done() }},
		{name: "a trickle that ends no line", text: "Hello", code: fault.CodeUpstream, says: "nothing for too long", answer: func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			stream(w, word("Hello"))
			for r.Context().Err() == nil {
				io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{name: "the role in every event", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, roleChunk, roleChunk, `{"choices":[{"delta":{"role":"assistant","content":"Hello"}}]}`, roleChunk, stopChunk, "[DONE]")
		}},
		{name: "no choices", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, `{"choices":[]}`, `{"choices":null}`, `{}`, word("Hello"), `{"object":"ping"}`, stopChunk, "[DONE]")
		}},
		{name: "an unknown reason", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), `{"choices":[{"delta":{},"finish_reason":"because"}]}`, "[DONE]")
		}},
		{name: "null where a text is expected", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, `{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null}],"usage":null,"error":null}`, word("Hello"), stopChunk, "[DONE]")
		}},
		{name: "text behind the end, and another answer", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), stopChunk, word(" again"), `{"choices":[{"index":1,"delta":{"content":"other"}}]}`, "[DONE]", word(" and again"))
		}},
		{name: "numbers that are none", text: "Hello", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), stopChunk, `{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":99999999999}}`, "[DONE]")
		}},
		{name: "a redirect to another server", code: fault.CodeUpstream, says: "leads to another address", answer: func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			http.Redirect(w, r, other.URL+"/v1/chat/completions", http.StatusTemporaryRedirect)
		}},
		{name: "invalid UTF-8", text: "H\ufffdllo", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, "{\"choices\":[{\"delta\":{\"content\":\"H\xffllo\"}}]}", stopChunk, "[DONE]")
		}},
		{name: "a gzip bomb", code: fault.CodeUpstream, says: "compressed", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(compressed)
		}},
		{name: "closed before the headers", code: fault.CodeUpstream, says: "ended too early", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { raw(w, "") }},
		{name: "no HTTP", code: fault.CodeUpstream, says: "connection", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { raw(w, "220 smtp ready\r\n\r\n") }},
		{name: "half a header", code: fault.CodeUpstream, says: "connection", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { raw(w, "HTTP/1.1 200 OK\r\nContent-") }},
		{name: "endless headers", code: fault.CodeUpstream, says: "connection", tries: 4, answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			raw(w, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Y: "+strings.Repeat("z", 1000)+"\r\n", 100))
		}},
		{name: "no JSON in an event", text: "Hello", code: fault.CodeUpstream, says: "not valid JSON", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w, word("Hello"), "oops")
		}},
		{name: "a model that cannot do this", code: fault.CodeNotSupported, says: "cannot do this: “embeddings only”", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(501)
			io.WriteString(w, `{"error":{"message":"embeddings only"}}`)
		}},
		{name: "a model that it does not have", code: fault.CodeNotFound, says: "does not know this: “no m”", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(404)
			io.WriteString(w, `{"error":{"message":"no m"}}`)
		}},
		{name: "a refused key", code: fault.CodeUpstream, says: "--upstream-keys", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { http.Error(w, "no", 401) }},
		{name: "a prompt that is too long", code: fault.CodeContext, says: "maximum context length is 4096", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(400)
			io.WriteString(w, `{"object":"error","message":"This model's maximum context length is 4096 tokens","code":400}`)
		}},
		{name: "a request that is refused", code: fault.CodeInvalid, says: "temperature", answer: func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(422)
			io.WriteString(w, `{"detail":"temperature must be warm"}`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t, c.answer)
			patience := time.Minute
			if strings.Contains(c.says, "nothing for too long") || c.name == "a stall after the reason" {
				patience = 5 * time.Second
			}
			r := patientRouterTo(t, patience, s)
			got := write(t, r, question("Hi"))
			code, message := got.code()
			if got.text != c.text || (c.code == "") != (got.err == nil) || code != c.code || !strings.Contains(message, c.says) {
				t.Errorf("got %q, %v %s, want %q, %v with %q", got.text, code, message, c.text, c.code, c.says)
			}
			if strings.Contains(message, "what was written is kept") != (c.text != "" && c.code != "") {
				t.Errorf("after %q, the error is %s", c.text, message)
			}
			if strings.ContainsAny(message, "\x1b\n") || len(message) > 700 {
				t.Errorf("the error has %d bytes, or control characters: %q", len(message), message)
			}
			if c.code == "" && (got.done == nil || got.done.Reason != infer.FinishStop || got.done.Usage.CompletionTokens < 0 || got.done.Usage.PromptTokens < 0) {
				t.Errorf("the record is %+v", got.done)
			}
			if want := max(1, c.tries); s.count() != want {
				t.Errorf("%d requests were sent, want %d", s.count(), want)
			}
		})
	}
	t.Cleanup(func() {
		if elsewhere != 0 {
			t.Error("a redirect was followed")
		}
	})
}

func TestAServerThatHasLessRoomEachTimeIsAskedTwice(t *testing.T) {
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		limit := body["max_tokens"].(float64)
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"error":{"message":"too long","code":"context_length_exceeded","n_prompt_tokens":%.0f,"n_ctx":4096}}`, 4096-limit+1)
	})
	request := question("Hi")
	request.MaxTokens = 2000
	got := write(t, routerTo(t, s), request)
	if code, message := got.code(); code != fault.CodeContext || s.count() != 2 {
		t.Errorf("after %d requests: %v %s", s.count(), code, message)
	}
}

func TestAListOfModelsThatIsNoneMakesNoModels(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":                   "<html>",
		"another shape":             `[1,2]`,
		"no names":                  `{"data":[{"id":""},{"id":"\u001b[2J"},{"id":"` + strings.Repeat("x", 300) + `"}]}`,
		"models of other upstreams": `{"data":[{"id":"far","meta":{"upstream":"a:1"}}]}`,
		"ten megabytes":             `{"data":[{"id":"` + strings.Repeat("x", 10<<20) + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t, greets)
			s.models = body
			a, _ := ParseAddress(s.URL)
			r := New(Options{Local: &localEngine{}, Servers: []Address{a}, CheckEvery: time.Millisecond})
			defer r.Close()
			eventually(t, "it is asked", func() bool { return !strings.Contains(r.Status().Upstreams[0].Problem, "not asked yet") })
			if list := r.Status().Remote; len(list) != 0 {
				t.Errorf("got %+v", list)
			}
		})
	}
}

func TestModelsAreCountedAndBounded(t *testing.T) {
	s := newStandIn(t, greets)
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf(`{"id":"m%d"},{"id":"m%d"}`, i, i))
	}
	s.models = `{"data":[` + strings.Join(list, ",") + `]}`
	if got := len(routerTo(t, s).Status().Remote); got != maxModels {
		t.Errorf("got %d models", got)
	}
}

func TestAnAnswerIsNoLongerThanWhatIsStored(t *testing.T) {
	for name, part := range map[string]string{
		"text":      `"content":"%s"`,
		"reasoning": `"reasoning":"%s"`,
		"arguments": `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"%s"}}]`,
	} {
		data := func(size int) []byte {
			return fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{`+part+`}}]}`, strings.Repeat("x", size))
		}
		taken := 0
		w := &writer{server: newServer(Address{}, &Options{}), request: &infer.Request{}, size: 16<<20 - 100, take: func(infer.Event) bool { taken++; return true }}
		if err := w.event(data(90)); err != nil || taken != 1 {
			t.Errorf("%s that can be stored: got %v and %d events", name, err, taken)
		}
		if err := w.event(data(11)); err == nil || !strings.Contains(err.Error(), "a text of more than") || taken != 1 {
			t.Errorf("%s that cannot be stored: got %v and %d events", name, err, taken)
		}
	}
}

func TestAnEventOfAnotherM40IsNoLargerThanWhatIsStored(t *testing.T) {
	token := func(change func(*infer.Token)) infer.Event {
		e := infer.Event{Type: infer.EventToken, Token: &infer.Token{}}
		change(e.Token)
		return e
	}
	done := func(change func(*infer.Done)) infer.Event {
		e := infer.Event{Type: infer.EventDone, Done: &infer.Done{}}
		e.Done.Reason, e.Done.Receipt.Params = infer.FinishStop, infer.DefaultRequest().Params
		change(e.Done)
		return e
	}
	for name, event := range map[string]func(size int) infer.Event{
		"row":         func(n int) infer.Event { return token(func(t *infer.Token) { t.Row = make([]byte, 4*n) }) },
		"changed row": func(n int) infer.Event { return token(func(t *infer.Token) { t.Changed = make([]byte, 4*n) }) },
		"id of a call": func(n int) infer.Event {
			return token(func(t *infer.Token) { t.Calls = []reply.CallDelta{{ID: strings.Repeat("x", n)}} })
		},
		"name": func(n int) infer.Event {
			return done(func(d *infer.Done) { d.Calls = []reply.CallDelta{{Name: strings.Repeat("x", n)}} })
		},
		"stop string": func(n int) infer.Event { return done(func(d *infer.Done) { d.StopString = strings.Repeat("x", n) }) },
		"model hash": func(n int) infer.Event {
			return done(func(d *infer.Done) { d.Receipt.ModelHash = strings.Repeat("x", n) })
		},
		"template hash": func(n int) infer.Event {
			return done(func(d *infer.Done) { d.Receipt.TemplateHash = strings.Repeat("x", n) })
		},
		"path": func(n int) infer.Event { return done(func(d *infer.Done) { d.Receipt.Path = strings.Repeat("x", n) }) },
		"cache type": func(n int) infer.Event {
			return done(func(d *infer.Done) { d.Receipt.CacheType = strings.Repeat("x", n) })
		},
		"engine": func(n int) infer.Event {
			return done(func(d *infer.Done) { d.Receipt.Engine = strings.Repeat("x", n) })
		},
	} {
		fits, large := event(1<<10), event(1<<10+1)
		check := func(e *infer.Event) string { return checkEvent(e) + checkCalls(e, new(int)) }
		if problem := check(&fits); problem != "" {
			t.Errorf("a %s that can be stored is refused: %s", name, problem)
		}
		if check(&large) == "" {
			t.Errorf("a %s that cannot be stored is taken", name)
		}
	}
}

// reset ends the connection of a request with a reset.
func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}
