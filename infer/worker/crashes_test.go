package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

func TestCrashes(t *testing.T) {
	now := time.Unix(0, 0)
	c := crashes{now: func() time.Time { return now }}
	refused := func(f fingerprint) bool {
		var e *fault.Error
		err := c.check(f)
		if err != nil && (!errors.As(err, &e) || e.Code != fault.CodeCrashes) {
			t.Fatalf("the error is %v", err)
		}
		return err != nil
	}
	bad, good := fingerprint{1}, fingerprint{2}
	for n := range maxCrashes {
		if refused(bad) {
			t.Fatalf("an input is refused after %d crashes", n)
		}
		ended := new(process)
		for range 2 * maxCrashes { // requests that had this input
			c.blame(bad, ended)
		}
	}
	if !refused(bad) || refused(good) {
		t.Error("after three crashes one input is to be refused, and no other")
	}
	now = now.Add(forgetTime - 1)
	if !refused(bad) {
		t.Error("the crashes are forgotten too early")
	}
	now = now.Add(1)
	if refused(bad) {
		t.Error("the crashes are not forgotten")
	}
	for range 2 * maxCrashes {
		c.blame(good, new(process))
		c.clear(good)
	}
	if refused(good) {
		t.Error("an input is refused that was answered between")
	}
	for n := range 3 * maxSuspects {
		c.blame(fingerprint{3, byte(n), byte(n >> 8), byte(n >> 16)}, new(process))
	}
	if len(c.suspects) > maxSuspects {
		t.Errorf("%d inputs are remembered", len(c.suspects))
	}
}

func TestFingerprintOf(t *testing.T) {
	base := infer.DefaultRequest()
	base.Messages = []chat.Message{{Role: "user", Content: "a"}}
	for name, c := range map[string]struct {
		change func(*infer.Request)
		same   bool
	}{
		"the seed":     {func(r *infer.Request) { r.Params.Seed = 7 }, true},
		"the length":   {func(r *infer.Request) { r.MaxTokens = 7 }, true},
		"a stop text":  {func(r *infer.Request) { r.Stop = []string{"x"} }, true},
		"the model":    {func(r *infer.Request) { r.Model = "m" }, false},
		"the text":     {func(r *infer.Request) { r.Messages = []chat.Message{{Role: "user", Content: "b"}} }, false},
		"who says it":  {func(r *infer.Request) { r.Messages = []chat.Message{{Role: "system", Content: "a"}} }, false},
		"a raw prompt": {func(r *infer.Request) { r.Messages, r.Prompt = nil, "a" }, false},
		"tokens":       {func(r *infer.Request) { r.Messages, r.Tokens = nil, []int32{1} }, false},
		"writing on":   {func(r *infer.Request) { r.Continue = true }, false},
		"a grammar":    {func(r *infer.Request) { r.Grammar = `root ::= "a"` }, false},
		"a schema":     {func(r *infer.Request) { r.JSONSchema = []byte(`{"const":1}`) }, false},
		"the tool":     {func(r *infer.Request) { r.ToolChoice = "f" }, false},
	} {
		t.Run(fmt.Sprintf("%s tells inputs apart: %t", name, !c.same), func(t *testing.T) {
			changed := base
			c.change(&changed)
			if same := fingerprintOf(changed) == fingerprintOf(base); same != c.same {
				t.Errorf("the fingerprints are the same: %t", same)
			}
		})
	}
}

// mortalEngine is an engine whose workers are in this process, and end without a word when
// they are given the prompt "bad"; others they answer. asked counts what workers are given.
// Each worker has the inputs alongside, which only wait.
func mortalEngine(beside ...fingerprint) (e *Engine, asked *int) {
	e = &Engine{crashes: crashes{now: time.Now}, closing: make(chan struct{}), changed: make(chan struct{}), wake: make(chan struct{}, 1)}
	asked = new(int)
	var worker func() *process
	worker = func() *process {
		p := &process{gone: make(chan struct{})}
		for _, f := range beside {
			p.inputs.add(f)
		}
		p.client = newClient(func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				r, err := http.ReadRequest(bufio.NewReader(theirs))
				if err != nil {
					return
				}
				body, _ := io.ReadAll(r.Body)
				*asked++
				if bytes.Contains(body, []byte(`"bad"`)) {
					e.update(func() { e.current = worker() })
					p.ended = "signal: segmentation fault"
					close(p.gone)
					return
				}
				io.WriteString(theirs, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+`{"type":"done","done":{"reason":"stop"}}`+"\n")
			}()
			return ours, nil
		})
		return p
	}
	e.current = worker()
	return e, asked
}

func TestEngine_AnInputThatEndsWorkersBeforeTheirFirstEventIsRefused(t *testing.T) {
	e, asked := mortalEngine()
	ask := func(prompt string) (code fault.Code) {
		r := infer.DefaultRequest()
		r.Prompt = prompt
		for _, err := range e.Generate(context.Background(), r) {
			if known, ok := errors.AsType[*fault.Error](err); ok {
				code = known.Code
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return code
	}
	for i, step := range []struct {
		prompt string
		code   fault.Code
		asked  int
	}{
		{"bad", fault.CodeLost, 2}, // it is asked once more
		{"good", "", 3},
		{"bad", fault.CodeCrashes, 4}, // the third end
		{"bad", fault.CodeCrashes, 4},
		{"good", "", 5},
	} {
		if code := ask(step.prompt); code != step.code || *asked != step.asked {
			t.Errorf("step %d, %s: got %q after %d requests, want %q after %d", i+1, step.prompt, code, *asked, step.code, step.asked)
		}
	}
}

func TestEngine_TextsAreBlamedOnlyIfTheWorkerHadNothingElse(t *testing.T) {
	r := infer.EmbedRequest{Inputs: []infer.EmbedInput{{Text: "bad"}}}
	for name, c := range map[string]struct {
		beside []fingerprint
		codes  []fault.Code // of one request after the other, each of which is sent twice
	}{
		"alone":                 {nil, []fault.Code{fault.CodeLost, fault.CodeCrashes, fault.CodeCrashes}},
		"beside the same texts": {[]fingerprint{fingerprintOfTexts(r)}, []fault.Code{fault.CodeLost, fault.CodeCrashes, fault.CodeCrashes}},
		"beside another input":  {[]fingerprint{{1}}, []fault.Code{fault.CodeLost, fault.CodeLost, fault.CodeLost}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := mortalEngine(c.beside...)
			for i, want := range c.codes {
				_, err := e.Embed(t.Context(), r)
				if known, ok := errors.AsType[*fault.Error](err); !ok || known.Code != want {
					t.Errorf("request %d: got %v, want %s", i+1, err, want)
				}
			}
		})
	}
}
