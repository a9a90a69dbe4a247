package engine

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
)

func TestEngine_HoldsAnswersToAGrammar(t *testing.T) {
	b := newBench(t, nil)
	held := func(set func(*infer.Request)) infer.Request {
		r := request(span(10, 20), 60)
		r.Params.Temperature, r.Params.Seed = 1, 7
		set(&r)
		return r
	}
	for _, c := range []struct {
		name string
		set  func(*infer.Request)
		want func(outcome) bool
	}{
		{"it ends where the grammar does, with nothing sampled after it", func(r *infer.Request) { r.Grammar = `root ::= "yes" | "no"` }, func(a outcome) bool {
			return (a.text == "yes" || a.text == "no") && a.done.Reason == infer.FinishStop && a.done.EndToken == nil
		}},
		{"it ends with an end token where it may go on", func(r *infer.Request) { r.Grammar = `root ::= "yes" "!"{0,40}`; r.MaxTokens = -1 }, func(a outcome) bool {
			return strings.Trim(a.text, "!") == "yes" && a.done.Reason == infer.FinishStop
		}},
		{"it is cut where it may not be longer", func(r *infer.Request) { r.Grammar = `root ::= [a-z]{100}`; r.MaxTokens = 5 }, func(a outcome) bool {
			return len(a.tokens) == 5 && a.done.Reason == infer.FinishLength && strings.Trim(a.text, "abcdefghijklmnopqrstuvwxyz") == ""
		}},
		{"no end token comes before the end", func(r *infer.Request) {
			r.Grammar = `root ::= "a"{30}`
			r.Params.LogitBias = map[int32]float64{toyEnd: 100}
		}, func(a outcome) bool { return a.text == strings.Repeat("a", 30) && a.done.Reason == infer.FinishStop }},
		{"a stop string ends it earlier", func(r *infer.Request) { r.Grammar = `root ::= "one" "two" "three"`; r.Stop = []string{"two"} }, func(a outcome) bool {
			return a.text == "one" && a.done.StopString == "two"
		}},
		{"a rune is put together of its bytes", func(r *infer.Request) { r.Grammar = `root ::= [äöü😀]{9}` }, func(a outcome) bool {
			return len([]rune(a.text)) == 9 && strings.Trim(a.text, "äöü😀") == ""
		}},
		{"a schema is held to", func(r *infer.Request) { r.JSONSchema = json.RawMessage(`{"enum":["x",["y"]]}`) }, func(a outcome) bool {
			return a.text == `"x"` || a.text == `["y"]`
		}},
		{"a control token that the grammar names comes", func(r *infer.Request) { r.Grammar = `root ::= "a" <[1]> "b"` }, func(a outcome) bool {
			return a.text == "ab" && slices.Equal(a.ids(), []int32{int32(letterA), 1, int32(letterA) + 1})
		}},
		{"an end token that the grammar names ends it", func(r *infer.Request) { r.Grammar = `root ::= "a" <[2]>` }, func(a outcome) bool {
			return a.text == "a" && a.done.EndToken != nil
		}},
		{"a banned string is gone around", func(r *infer.Request) {
			r.Grammar = `root ::= ("ab" | "ac" | "b")  ("x" | "y") "z"`
			r.BannedStrings = []string{"b"}
		}, func(a outcome) bool { return a.text == "acxz" || a.text == "acyz" }},
		{"where all that may come is banned it ends", func(r *infer.Request) { r.Grammar = `root ::= "abc"`; r.BannedStrings = []string{"bc"} }, func(a outcome) bool {
			return a.text == "a" && a.done.Reason == infer.FinishBanned
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range int64(5) {
				r := held(c.set)
				r.Params.Seed = seed
				if a := b.ask(r); a.err != nil || !c.want(a) {
					t.Errorf("seed %d: %q %v, %+v, %v", seed, a.text, a.ids(), a.done, a.err)
				}
			}
		})
	}

	t.Run("a schema is that of the content, behind reasoning that the prompt has opened", func(t *testing.T) {
		thinks := parseBench(t, gguftest.ChatML+"{% if add_generation_prompt %}<think>\n{% endif %}")
		thinks.recite(`Hm, <x> and </think> {"a": 12} Hi.`)
		r := callRequest()
		r.JSONSchema = json.RawMessage(`{"properties":{"a":{"type":"integer","maximum":9}},"required":["a"]}`)
		if got := hear(t, thinks.ask(r)); got.reasoning != "Hm, <x> and" || validJSON(r.JSONSchema, got.text) != nil || got.reason != infer.FinishStop {
			t.Errorf("%+v", got)
		}
		r.ParseReply = false
		if got := hear(t, thinks.ask(r)); !strings.HasPrefix(got.text, `{`) {
			t.Errorf("not parsed: %+v", got)
		}
	})

	t.Run("beside others it is the same", func(t *testing.T) {
		var requests []infer.Request
		for i := range 6 {
			requests = append(requests, held(func(r *infer.Request) {
				r.Params.Seed = int64(i)
				if i%2 == 0 {
					r.JSONSchema = json.RawMessage(`{"type":"array","items":{"type":"string","maxLength":4},"maxItems":3}`)
				}
			}))
		}
		alone := make([]outcome, len(requests))
		for i, r := range requests {
			alone[i] = b.ask(r)
		}
		var all sync.WaitGroup
		for i, r := range requests {
			all.Go(func() {
				if a := b.ask(r); a.err != nil || !slices.Equal(a.ids(), alone[i].ids()) {
					t.Errorf("answer %d: %v %v, alone %v", i, a.ids(), a.err, alone[i].ids())
				}
			})
		}
		all.Wait()
	})

	for _, c := range []struct {
		name  string
		set   func(*infer.Request)
		code  fault.Code
		param string
		text  string
	}{
		{"a grammar that is none is refused", func(r *infer.Request) { r.Grammar = "root = x" }, fault.CodeInvalid, "grammar", "line 1: expected ::= after root"},
		{"a token that the model does not have is refused", func(r *infer.Request) { r.Grammar = "root ::= <[320]>" }, fault.CodeInvalid, "grammar", "token 320"},
		{"a schema that cannot be held to is refused", func(r *infer.Request) { r.JSONSchema, r.StrictSchema = json.RawMessage(`{"items":{"if":{}}}`), true }, fault.CodeInvalid, "json_schema", "#/items/if: the keyword if"},
		{"both are refused", func(r *infer.Request) { r.Grammar, r.JSONSchema = `root ::= "a"`, json.RawMessage(`true`) }, fault.CodeInvalid, "grammar", "only one"},
		{"going on past the end is refused", func(r *infer.Request) { r.Grammar, r.IgnoreEOS = `root ::= "a"`, true }, fault.CodeInvalid, "ignore_eos", "no meaning"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := b.ask(held(c.set))
			var e *fault.Error
			if a.code() != c.code {
				t.Fatalf("got %v", a.err)
			}
			if e = a.err.(*fault.Error); e.Param != c.param || !strings.Contains(e.Message, c.text) {
				t.Errorf("got %q about %q", e.Message, e.Param)
			}
		})
	}
	t.Run("the model has no token for what must come", func(t *testing.T) {
		b.onLogits = func(logits []float32, _ int32) { logits[letterA] = -1e30 }
		defer func() { b.onLogits = nil }()
		if a := b.ask(held(func(r *infer.Request) { r.Grammar = `root ::= "a"` })); a.err != nil || a.text != "a" {
			t.Errorf("an unlikely token: %q, %v", a.text, a.err)
		}
	})
}

// TestGuide_AnswersHeldToSchemasAreValid asks the built-in model for documents of many
// schemas, many at once, and has somebody else's validator look at them.
func TestGuide_AnswersHeldToSchemasAreValid(t *testing.T) {
	data, err := os.ReadFile("../grammar/testdata/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	var schemas []struct {
		Name   string
		Schema json.RawMessage
	}
	if err := json.Unmarshal(data, &schemas); err != nil {
		t.Fatal(err)
	}
	rounds, want := 2, 50
	if fixtures.Torture() {
		rounds, want = 14, 500
	}
	b := newGuideBench(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	valid, cut, used, tokens := 0, 0, map[string]bool{}, 0
	began := time.Now()
	for round := range rounds {
		for i, c := range schemas {
			all.Go(func() {
				r := infer.DefaultRequest()
				r.Messages = []chat.Message{{Role: "user", Content: "Tell me about " + c.Name + ". Answer as JSON."}}
				r.JSONSchema, r.MaxTokens = c.Schema, 120
				r.Params.Seed, r.Params.Temperature = int64(round*len(schemas)+i), 0.8
				a := b.ask(r)
				mu.Lock()
				defer mu.Unlock()
				tokens += len(a.tokens)
				if a.err != nil {
					t.Errorf("%s: %v", c.Name, a.err)
					return
				}
				if a.done.Reason == infer.FinishLength {
					cut++
					return
				}
				if err := validJSON(c.Schema, a.text); err != nil {
					t.Errorf("%s: %s: %v", c.Name, a.text, err)
					return
				}
				valid++
				used[c.Name] = true
			})
		}
	}
	all.Wait()
	t.Logf("%d answers to %d schemas are valid, %d were cut at their length and do not count; %d tokens in %v", valid, len(used), cut, tokens, time.Since(began).Round(time.Millisecond))
	if valid < want || len(used) < 25 {
		t.Errorf("%d answers to %d schemas are too few", valid, len(used))
	}
}

func validJSON(schema json.RawMessage, text string) error {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		return err
	}
	if err := c.AddResource("schema.json", doc); err != nil {
		return err
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		return err
	}
	if doc, err = jsonschema.UnmarshalJSON(strings.NewReader(text)); err != nil {
		return err
	}
	return s.Validate(doc)
}

// newGuideBench opens an engine with the built-in model on the CPU.
func newGuideBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, files: map[string][]byte{"guide": guide.Model}}
	b.openReady(Options{
		Catalog:    catalog{b},
		OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(0) },
		Model:      "guide",
		QueueLimit: 1000,
	})
	return b
}
