package handlerstest

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/live"
	"m40-llm/handlers/presets"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// Script is an engine whose answers a test writes word by word.
type Script struct {
	handlers.Engine // the rest of the interface is not called by the page
	Answers         chan *ScriptedAnswer

	mu      sync.Mutex
	Current infer.Status
	listed  []infer.ModelInfo
}

// Suggest gives the loaded model's file settings of its own.
func (s *Script) Suggest(values map[string]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Current.Model.Sampling = &sample.Suggestion{Values: values}
}

// NewScript returns an engine whose model is ready.
func NewScript() *Script {
	return &Script{
		Answers: make(chan *ScriptedAnswer, 64),
		Current: infer.Status{
			State:         infer.StateReady,
			Model:         infer.ModelInfo{Name: "guide", Quant: "Q8_0", Parameters: 14_200_000, Demo: true},
			Device:        device.Info{Kind: "cpu", Name: "AMD EPYC 9B14, 2 threads", Path: "avx512vnni"},
			ContextLength: 2048,
			LoadMS:        212,
		},
	}
}

// Status returns the status as Set left it.
func (s *Script) Status() infer.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Current
}

// Detokenize names the tokens.
func (s *Script) Detokenize(_ context.Context, _ string, ids []int32) (string, error) {
	return fmt.Sprint(ids), nil
}

// Pieces names each token.
func (s *Script) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	for i := range ids {
		piece, _ := s.Detokenize(ctx, name, ids[i:i+1])
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

// Tokenize counts words.
func (s *Script) Tokenize(_ context.Context, _, text string, _, _ bool) ([]int32, error) {
	return make([]int32, len(strings.Fields(text))), nil
}

// PictureTokens is how many tokens of a prompt of a Script belong to a picture.
const PictureTokens = 256

// pictureDetails is how many there are in each detail.
var pictureDetails = infer.PictureTokens{Low: 64, Medium: 128, Full: PictureTokens}

// Render counts the words of messages, three tokens around each, and those of pictures. The largest part that it names is a
// system prompt.
func (s *Script) Render(_ context.Context, r infer.Request) (infer.Rendered, error) {
	var view infer.Rendered
	for _, m := range r.Messages {
		view.Tokens = append(view.Tokens, make([]int32, 3+len(strings.Fields(m.Content)))...)
		for i := range m.Pictures {
			n := PictureTokens
			switch m.DetailOf(i) {
			case "low":
				n = pictureDetails.Low
			case "medium":
				n = pictureDetails.Medium
			}
			view.Tokens, view.Pictures = append(view.Tokens, make([]int32, n)...), append(view.Pictures, n)
			view.Details = append(view.Details, pictureDetails)
		}
	}
	if first := r.Messages; len(first) > 0 && first[0].IsSystem() {
		if n := len(strings.Fields(first[0].Content)); 2*n > len(view.Tokens) {
			view.Largest, view.LargestTokens = fault.PartSystem, n
		}
	}
	return view, nil
}

// Models lists those that list was given, or else the one that answers.
func (s *Script) Models(context.Context) ([]infer.ModelInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed != nil {
		return s.listed, nil
	}
	return []infer.ModelInfo{s.Current.Model}, nil
}

// List makes models those that can be asked for.
func (s *Script) List(models ...infer.ModelInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = models
}

// Set changes the status.
func (s *Script) Set(change func(*infer.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.Current)
}

// ScriptedAnswer is a request and the answer to it.
type ScriptedAnswer struct {
	Request infer.Request
	events  chan infer.Event
	failure chan error
	Ended   chan struct{} // closed when no one waits for events any more
	Count   int
}

// Generate sends a ScriptedAnswer to Answers and yields what the test writes there.
func (s *Script) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	a := &ScriptedAnswer{Request: r, events: make(chan infer.Event), failure: make(chan error, 1), Ended: make(chan struct{})}
	return func(yield func(infer.Event, error) bool) {
		defer close(a.Ended)
		s.Answers <- a
		for {
			select {
			case e := <-a.events:
				if !yield(e, nil) || e.Done != nil {
					return
				}
			case err := <-a.failure:
				yield(infer.Event{}, err)
				return
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			}
		}
	}
}

// Next returns the answer that the page asked for.
func (s *Script) Next(t testing.TB) *ScriptedAnswer {
	t.Helper()
	select {
	case a := <-s.Answers:
		return a
	case <-time.After(Hang):
		t.Fatal("the engine was not asked")
		return nil
	}
}

// Send waits until the server takes the event.
func (a *ScriptedAnswer) Send(e infer.Event) { a.events <- e }

// Write writes tokens that have a text and no id.
func (a *ScriptedAnswer) Write(tokens ...string) {
	for _, text := range tokens {
		a.Count++
		a.Send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: text}})
	}
}

// Think writes words that the model only thinks.
func (a *ScriptedAnswer) Think(tokens ...string) {
	for _, text := range tokens {
		a.Count++
		a.Send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Reasoning: text}})
	}
}

// Finish ends the answer as an end token does.
func (a *ScriptedAnswer) Finish() {
	a.Send(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:     record.End{Reason: infer.FinishStop, EndProb: 0.97},
		Usage:   record.Usage{PromptTokens: 31, CompletionTokens: a.Count},
		Timings: record.Timings{Queue: time.Millisecond, Prefill: 62 * time.Millisecond, Decode: time.Duration(a.Count) * 9 * time.Millisecond},
		Receipt: record.Receipt{Params: a.Request.Params},
	}}})
}

// Fail ends the answer with an error.
func (a *ScriptedAnswer) Fail(err error) { a.failure <- err }

// Serve starts a server whose page talks to engine.
func Serve(t testing.TB, engine handlers.Engine) *httptest.Server {
	t.Helper()
	chats := live.New(engine, live.Options{Log: slog.New(slog.DiscardHandler)})
	server := ServeChats(t, engine, chats)
	t.Cleanup(chats.Close)
	return server
}

// ImportList imports a chat as a file would be.
func ImportList(s *live.Service, n store.Metadata, list []store.Message, leaf int64) (id string, err error) {
	c, err := s.Import(context.Background(), access.Local, func(yield func(store.Message, error) bool) {
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}, func() (store.Metadata, int64, error) { return n, leaf, nil })
	return c.ID, err
}

// Tokens writes words, numbered from 1 on.
func (a *ScriptedAnswer) Tokens(words ...string) {
	for _, text := range words {
		a.Count++
		a.Send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: int32(a.Count)}, Text: text, Bytes: []byte(text)}})
	}
}

// Sign ends an answer with a receipt.
func (a *ScriptedAnswer) Sign(engine string) {
	a.Send(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:     record.End{Reason: infer.FinishStop, EndProb: 0.97},
		Usage:   record.Usage{PromptTokens: 31, CompletionTokens: a.Count},
		Receipt: record.Receipt{Params: a.Request.Params, Model: "guide", ModelHash: "a", TemplateHash: "b", Engine: engine, Path: "avx2", CacheType: "f16"},
	}}})
}

// vocabulary is the number of tokens, each of which spells its id.
type vocabulary int

func (v vocabulary) Size() int { return int(v) }

func (v vocabulary) Piece(id int32) []byte { return fmt.Appendf(nil, "<%d>", id) }

// Sampled returns what the sampler chain does to random logits: the choice, and the row that the
// samplers that remove candidates got.
func Sampled(t testing.TB, random *rand.Rand, vocab int, p sample.Params) (sample.Choice, []byte) {
	t.Helper()
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(3 * random.NormFloat64())
	}
	chain, err := sample.NewChain(p, vocabulary(vocab))
	if err != nil {
		t.Fatal(err)
	}
	c, err := chain.Next(sample.Input{Row: sample.RowOf(logits), History: []int32{1, 2, 3}, Pos: 3, Store: true})
	if err != nil {
		t.Fatal(err)
	}
	if c.Changed != nil {
		return c, c.Changed
	}
	return c, c.Row
}

// WriteSampled writes tokens with the rows of random logits, and returns what was chosen.
func (a *ScriptedAnswer) WriteSampled(t testing.TB, random *rand.Rand, texts ...string) (choices []sample.Choice) {
	t.Helper()
	p := a.Request.Params
	for i, text := range texts {
		p.Seed = int64(i + 1)
		c, _ := Sampled(t, random, 3000, p)
		choices = append(choices, c)
		a.Count++
		a.Send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: text, Choice: c}})
	}
	return choices
}

// ServeStored starts a server that keeps its chats, with settings that change may change.
func ServeStored(t testing.TB, engine handlers.Engine, change ...func(*handlers.Config)) (*httptest.Server, *live.Service) {
	t.Helper()
	db, err := store.Open(context.Background(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	chats := live.New(engine, live.Options{Log: slog.New(slog.DiscardHandler), Store: db})
	server := ServeChats(t, engine, chats, append([]func(*handlers.Config){func(c *handlers.Config) {
		c.Presets = presets.New(chats, db)
		c.Compare = compare.New(chats, c.Presets, db)
	}}, change...)...)
	t.Cleanup(chats.Close)
	return server, chats
}

// ServeComparing is ServeStored, and returns what compares answers too.
func ServeComparing(t testing.TB, engine handlers.Engine) (server *httptest.Server, chats *live.Service, comparing *compare.Service) {
	t.Helper()
	server, chats = ServeStored(t, engine, func(c *handlers.Config) { comparing = c.Compare })
	return server, chats, comparing
}

// ServeChats starts a server for chats, with settings that change may change.
func ServeChats(t testing.TB, engine handlers.Engine, chats *live.Service, change ...func(*handlers.Config)) *httptest.Server {
	t.Helper()
	cfg := handlers.Config{Engine: engine, Live: chats, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	server := httptest.NewServer(handlers.New(cfg))
	t.Cleanup(server.Close)
	return server
}
