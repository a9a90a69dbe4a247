package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/hub"
)

// countingEngine remembers the requests to an engine.
type countingEngine struct {
	*engine.Engine
	mu    sync.Mutex
	asked []infer.Request
}

func (e *countingEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	e.mu.Lock()
	e.asked = append(e.asked, r)
	e.mu.Unlock()
	return e.Engine.Generate(ctx, r)
}

// take returns the requests since it was last called.
func (e *countingEngine) take() []infer.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := e.asked
	e.asked = nil
	return asked
}

func openSeeing(t *testing.T, family string) *countingEngine {
	t.Helper()
	return &countingEngine{Engine: handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model = hub.New(hub.Options{Dir: fixtures.Images(t, family)}), "text"
		o.OpenTower = func(*gguf.File) (device.Device, error) { return cpu.Open(1) }
	})}
}

type (
	sight struct {
		Pictures []struct {
			Hash          string
			Width, Height int
			Divisions     []struct {
				X, Y    []int
				Prompts int
				Seconds float64
			}
		}
		Loaded bool
	}
	looked struct {
		X, Y    []int
		Whole   float64
		Without []*float64
	}
	lookLine struct {
		Parts  *struct{ Done, Total int }
		Looked *looked
		Error  *struct{ Message string }
	}
)

func linesOf(t *testing.T, body string) (list []lookLine) {
	t.Helper()
	for text := range strings.Lines(body) {
		var line lookLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		list = append(list, line)
	}
	return list
}

func read[T any](t *testing.T, server *httptest.Server, path string) (v T) {
	t.Helper()
	got := handlerstest.Call(t, server, http.MethodGet, path, "", "Accept", "application/json")
	if err := json.Unmarshal([]byte(got.Body), &v); err != nil || got.Status != http.StatusOK {
		t.Fatalf("%s: got %d: %s", path, got.Status, got.Body)
	}
	return v
}

// scoreWithout asks an engine itself for the score of one token of an answer.
func scoreWithout(t *testing.T, e *countingEngine, r infer.Request, part *infer.PicturePart, token int) float64 {
	t.Helper()
	r.LeftOut = part
	score := 0.0
	for event, err := range e.Engine.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Token != nil {
			if token--; token == -1 {
				score = event.Token.LogProb
			}
		}
	}
	return score
}

func TestLooked_EachPartCountsWhatTheAnswerScoresWithoutIt(t *testing.T) {
	for family, tc := range map[string]struct {
		file      string
		divisions [][2]int // rows and columns
	}{
		"gemma3":   {"wide.png", [][2]int{{4, 4}}},
		"qwen25vl": {"large.png", [][2]int{{2, 3}, {4, 5}, {7, 9}}},
		"smolvlm":  {"wide.png", nil},
		"lfm2":     {"wide.png", nil},
	} {
		t.Run(family, func(t *testing.T) {
			e := openSeeing(t, family)
			server, _ := handlerstest.ServeStored(t, e)
			file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", tc.file))
			if err != nil {
				t.Fatal(err)
			}
			c := handlerstest.DialSocket(t, server)
			c.Do("send", map[string]any{"text": "What is this?", "pictures": []string{upload(t, server, string(file)).Hash}, "settings": map[string]any{"max_tokens": 3, "temperature": 0}})
			c.Until("the answer ends", c.Ended)
			path := "/c/" + c.Chat + "/looked/" + lastAnswer(c) + "/2"
			e.take()

			s := read[sight](t, server, path)
			if len(s.Pictures) != 1 || !s.Loaded || len(s.Pictures[0].Divisions) == 0 {
				t.Fatalf("got %+v", s)
			}
			d := s.Pictures[0].Divisions[0]
			rows, columns := len(d.Y), len(d.X)
			parts := rows * columns
			if parts < 2 || parts > 16 || d.Prompts != parts+1 || d.Seconds != 0 {
				t.Errorf("the coarsest division is %+v", d)
			}
			for i, d := range tc.divisions {
				if got := s.Pictures[0].Divisions[i]; len(got.Y) != d[0] || len(got.X) != d[1] {
					t.Errorf("division %d is %+v, want %v", i, got, d)
				}
			}
			if got := handlerstest.Call(t, server, http.MethodGet, path+"?picture=0&division=0", ""); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "is not known") {
				t.Errorf("before it is asked for: %d %s", got.Status, got.Body)
			}

			// One part says how long all take.
			handlerstest.PostScripted(t, server, path, `{"picture":0,"division":0,"parts":1}`)
			first := e.take()
			if len(first) != 2 || first[0].LeftOut != nil || first[1].LeftOut == nil {
				t.Fatalf("%d prompts were scored for one part, want 2", len(first))
			}
			if d := read[sight](t, server, path).Pictures[0].Divisions[0]; d.Prompts != parts-1 || d.Seconds <= 0 {
				t.Errorf("with one part known, the division is %+v", d)
			}

			lines := linesOf(t, handlerstest.PostScripted(t, server, path, `{"picture":0,"division":0,"parts":0}`).Body)
			if n := len(e.take()); n != parts-1 {
				t.Errorf("%d further prompts were scored, want %d", n, parts-1)
			}
			last := lines[len(lines)-1].Looked
			if last == nil || !slices.Equal(last.X, d.X) || !slices.Equal(last.Y, d.Y) || last.X[columns-1] != s.Pictures[0].Width || last.Y[rows-1] != s.Pictures[0].Height {
				t.Fatalf("got %+v, %+v", lines, lines[len(lines)-1].Error)
			}
			if p := lines[len(lines)-2].Parts; p == nil || p.Done != parts || p.Total != parts {
				t.Errorf("the last progress is %+v", p)
			}

			// The same from the engine itself.
			answer := handlerstest.PostScripted(t, server, path, `{"picture":0,"division":0,"parts":0}`)
			if asked := e.take(); len(asked) != 0 || linesOf(t, answer.Body)[0].Looked == nil {
				t.Errorf("asked again, %d prompts were scored: %s", len(asked), answer.Body)
			}
			r := first[0]
			if got := float64(float32(scoreWithout(t, e, r, nil, 2))); got != last.Whole {
				t.Errorf("the whole picture scores %g, want %g", last.Whole, got)
			}
			differs := false
			for i, without := range last.Without {
				at := func(edges []int, k int) (from, size int) {
					if k > 0 {
						from = edges[k-1]
					}
					return from, edges[k] - from
				}
				p := &infer.PicturePart{}
				p.X, p.Width = at(last.X, i%columns)
				p.Y, p.Height = at(last.Y, i/columns)
				if without == nil || *without != float64(float32(scoreWithout(t, e, r, p, 2))) {
					t.Errorf("part %d: got %v", i, without)
				} else if *without != last.Whole {
					differs = true
				}
			}
			if !differs {
				t.Error("no part counts anything")
			}
			if other := read[looked](t, server, strings.TrimSuffix(path, "/2")+"/0?picture=0&division=0"); len(other.Without) != parts || other.Whole == last.Whole {
				t.Errorf("another token has %+v", other)
			}
		})
	}
}

func TestLooked_WhoLeavesCancelsWhatIsLeft(t *testing.T) {
	e := &handlerstest.HeldEngine{Engine: openSeeing(t, "qwen25vl").Engine}
	e.Left.Store(2)
	server, _ := handlerstest.ServeStored(t, e)
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "large.png"))
	if err != nil {
		t.Fatal(err)
	}
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "What is this?", "pictures": []string{upload(t, server, string(file)).Hash}, "settings": map[string]any{"max_tokens": 3, "temperature": 0}})
	c.Until("the answer ends", c.Ended)
	path := "/c/" + c.Chat + "/looked/" + lastAnswer(c) + "/2"
	s := read[sight](t, server, path)
	last := len(s.Pictures[0].Divisions) - 1
	parts := len(s.Pictures[0].Divisions[last].X) * len(s.Pictures[0].Divisions[last].Y)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, strings.NewReader(fmt.Sprintf(`{"picture":0,"division":%d,"parts":0}`, last)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", server.URL)
	r.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	left := func() int { return read[sight](t, server, path).Pictures[0].Divisions[last].Prompts }
	for left() != parts-2 || e.Waiting.Load() == 0 { // until the test times out; not every part is reported
		time.Sleep(time.Millisecond)
	}
	leave()
	for e.Waiting.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	known := read[looked](t, server, path+fmt.Sprintf("?picture=0&division=%d", last))
	unknown := 0
	for _, part := range known.Without {
		if part == nil {
			unknown++
		}
	}
	if unknown != parts-2 || left() != parts-2 {
		t.Errorf("%d of %d parts are not known, and %d prompts are left", unknown, parts, left())
	}
}

func TestStages_OfATokenBehindAPictureAreComputedByTheModel(t *testing.T) {
	e := openSeeing(t, "gemma3")
	server, _ := handlerstest.ServeStored(t, e)
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "wide.png"))
	if err != nil {
		t.Fatal(err)
	}
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "What is this?", "pictures": []string{upload(t, server, string(file)).Hash}, "settings": map[string]any{"max_tokens": 4, "seed": 7}})
	c.Until("the answer ends", c.Ended)
	path := "/c/" + c.Chat + "/tokens/" + lastAnswer(c) + "/2"
	var asked struct {
		Source string
		Tokens []struct{ P []float64 }
	}
	got := handlerstest.PostScripted(t, server, path+"/stages", "{}")
	if err := json.Unmarshal([]byte(got.Body), &asked); err != nil || asked.Source != "model" {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if stored := read[struct{ P float64 }](t, server, path); math.Abs(stored.P-asked.Tokens[0].P[0]) > 1e-9 {
		t.Errorf("one step of the model gives the token %g, when it was drawn it had %g", asked.Tokens[0].P[0], stored.P)
	}
}

func TestLooked_WhatCannotBeAskedIsRefused(t *testing.T) {
	e := openSeeing(t, "gemma3")
	server, _ := handlerstest.ServeStored(t, e)
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "wide.png"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(pictures ...string) string {
		c := handlerstest.DialSocket(t, server)
		c.Do("send", map[string]any{"text": "What is this?", "pictures": pictures, "settings": map[string]any{"max_tokens": 2, "temperature": 0}})
		c.Until("the answer ends", c.Ended)
		return "/c/" + c.Chat + "/looked/" + lastAnswer(c)
	}
	text, seen := ask(), ask(upload(t, server, string(file)).Hash)
	for name, tc := range map[string]struct{ path, body, want string }{
		"an answer about a text":            {text + "/0", `{"picture":0}`, "has no pictures"},
		"a token that is not there":         {seen + "/2", `{"picture":0}`, "has no token 2"},
		"a picture that is not there":       {seen + "/0", `{"picture":1}`, "has no picture 1"},
		"a division that is not there":      {seen + "/0", `{"picture":0,"division":9}`, "has no division 9"},
		"a picture before the first":        {seen + "/0", `{"picture":-1}`, "has no picture -1"},
		"an answer that is not there":       {strings.Replace(seen, "/looked/", "/looked/9", 1) + "/0", `{"picture":0}`, "answer"},
		"a field that does not exist":       {seen + "/0", `{"image":0}`, "image"},
		"a token whose number is no number": {seen + "/x", `{"picture":0}`, "whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := handlerstest.PostScripted(t, server, tc.path, tc.body); !slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound}, got.Status) || !strings.Contains(got.Body, tc.want) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
}
