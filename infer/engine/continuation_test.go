package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf/gguftest"
)

// thinkers are ways in which models write reasoning: with control tokens or in text.
var thinkers = []struct {
	name, template string
	controls       []string
	prompt, reply  string // reply in pieces between spaces; control tokens are pieces
}{
	{
		name:     "harmony",
		template: `{% for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}`,
		controls: []string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"},
		prompt:   "<|start|>user<|message|>x<|end|><|start|>assistant",
		reply:    "<|channel|> analysis <|message|> Hm.\n\nSo. <|end|> <|start|> assistant <|channel|> final <|message|> Hi\nthere. <|end|>",
	},
	{
		name:     "command-r7b",
		template: `{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|>{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}{# <|START_ACTION|> #}`,
		controls: []string{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
		prompt:   "<user>x<bot>",
		reply:    "<|START_THINKING|> Hm.\n\nSo. <|END_THINKING|> <|START_RESPONSE|> Hi\nthere. <|END_RESPONSE|>",
	},
	{
		name:     "mistral",
		template: `{% for m in messages %}{% if m.content is string %}[{{ m.role }}]{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'thinking' %}[THINK]{{ p.thinking }}[/THINK]{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}{# [TOOL_CALLS] #}`,
		controls: []string{"[THINK]", "[/THINK]"},
		prompt:   "[user]x",
		reply:    "[THINK] Hm.\n\nSo. [/THINK] Hi\nthere.",
	},
	{
		name:     "text that the prompt begins",
		template: `{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}{% if add_generation_prompt %}{{ "<bot><think>\n" }}{% endif %}`,
		prompt:   "<user>x<bot><think>\n",
		reply:    "Hm.\n\nSo.\n</think>\n\nHi\nthere.",
	},
}

// thinkerBench is an engine whose model is one of thinkers, and the tokens of its reply.
func thinkerBench(t *testing.T, i int) (*bench, []int32) {
	c := thinkers[i]
	b := newBench(t, func(b *bench, _ *Options) {
		b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 1024, Template: c.template, Controls: c.controls})
	})
	var ids []int32
	for _, piece := range strings.Split(c.reply, " ") {
		if at := slices.Index(c.controls, piece); at >= 0 {
			ids = append(ids, int32(toyVocab-len(c.controls)+at))
			continue
		}
		spelled, err := b.Tokenize(t.Context(), "", piece, false, false)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, spelled...)
	}
	return b, ids
}

func thinkerRequest() infer.Request {
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: "x"}}
	r.ParseReply, r.MaxTokens, r.Params.Temperature = true, 200, 0
	return r
}

func TestParseReply_TellsThoughtsApartInEveryWayOfWritingThem(t *testing.T) {
	for i, c := range thinkers {
		b, ids := thinkerBench(t, i)
		b.reciteTokens(append(ids, toyEnd))
		got := hear(t, b.ask(thinkerRequest()))
		if got.reasoning != "Hm.\n\nSo." || got.text != "Hi\nthere." {
			t.Errorf("%s: it thinks %q and says %q", c.name, got.reasoning, got.text)
		}
	}
}

// Wherever an answer ends, by a limit or because it is stopped, it goes on in its own
// tokens, and what it says then is what was still to come.
func TestContinue_GoesOnInTheTokensOfTheAnswer(t *testing.T) {
	for i, c := range thinkers {
		b, ids := thinkerBench(t, i)
		for n := 1; n < len(ids); n++ {
			for _, ended := range []bool{false, true} {
				b.reciteTokens(append(slices.Clone(ids), toyEnd))
				r := thinkerRequest()
				r.MaxTokens = n
				first := b.ask(r)
				before := hear(t, first)
				if !ended { // as who stops it has it
					before.text, before.reasoning = "", ""
					for _, token := range first.tokens {
						before.text, before.reasoning = before.text+token.Text, before.reasoning+token.Reasoning
					}
				}
				r = thinkerRequest()
				r.Continue, r.ContinuedTokens = true, ids[:n]
				r.Messages = append(r.Messages, chat.Message{Role: "assistant", Content: before.text, ReasoningContent: before.reasoning})
				view, err := b.Render(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if spells := view.Continued; !ended && (spells == nil || spells.Content != before.text || spells.ReasoningContent != before.reasoning) {
					t.Fatalf("%s: %d tokens are said to spell %+v, want %q and %q", c.name, n, spells, before.reasoning, before.text)
				}
				if view.Prompt != c.prompt || !slices.Equal(view.Tokens[len(view.Tokens)-n:], ids[:n]) {
					t.Fatalf("%s, continued behind %d tokens: the prompt is %q, %d", c.name, n, view.Prompt, view.Tokens)
				}
				b.reciteTokens(append(slices.Clone(ids[n:]), toyEnd))
				after := hear(t, b.ask(r))
				if reasoning, said := before.reasoning+after.reasoning, before.text+after.text; strings.TrimRight(reasoning, "\n") != "Hm.\n\nSo." || said != "Hi\nthere." {
					if ended && c.controls == nil && strings.ContainsAny(before.reasoning, "<") {
						continue // a limit within a tag shows its beginning
					}
					t.Errorf("%s, continued behind %d tokens, %t: it thinks %q and says %q", c.name, n, ended, reasoning, said)
				}
			}
		}
	}
}

func TestContinue_WithASeedIsAsIfTheAnswerHadNotEnded(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	r := thinkerRequest()
	r.Params.Temperature, r.Params.Seed, r.MaxTokens = 1.5, 7, 40
	whole := b.ask(r).ids()
	for _, n := range []int{1, 7, 39} {
		r.MaxTokens = n
		first := hear(t, b.ask(r))
		next := r
		next.Continue, next.ContinuedTokens, next.MaxTokens = true, whole[:n], 40-n
		next.Messages = append(slices.Clone(r.Messages), chat.Message{Role: "assistant", Content: first.text, ReasoningContent: first.reasoning})
		if got := b.ask(next).ids(); !slices.Equal(got, whole[n:]) {
			t.Errorf("behind %d tokens come %d, want %d", n, got, whole[n:])
		}
	}
}

func TestContinue_KeepsWhatAStopStringMayBeginWith(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	b.recite("ab")
	r := thinkerRequest()
	r.Stop, r.Continue = []string{"<stop>"}, true
	r.ContinuedTokens, _ = b.Tokenize(t.Context(), "", "Hi<st", false, false)
	for said, want := range map[string]string{"Hi": "<stab", "Hi<st": "ab"} {
		r.Messages = []chat.Message{{Role: "user", Content: "x"}, {Role: "assistant", Content: said}}
		if got := hear(t, b.ask(r)); got.text != want {
			t.Errorf("behind %q comes %q, want %q", said, got.text, want)
		}
		b.recite("ab")
	}
	b.recite("op>c")
	r.Messages[1].Content = "Hi"
	if got := hear(t, b.ask(r)); got.text != "" || got.reason != infer.FinishStop {
		t.Errorf("the stop string ends it with %q, %s", got.text, got.reason)
	}
}

// Tokens that are not those of the message are not what the model is given.
func TestContinue_TakesTheTextWhereTheTokensSaySomethingElse(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	r := thinkerRequest()
	r.Continue = true
	r.Messages = append(r.Messages, chat.Message{Role: "assistant", Content: "Hi"})
	want, err := b.Render(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for name, begun := range map[string][]int32{
		"other text":         {3 + 'H', 3 + 'o'},
		"more text":          {3 + 'H', 3 + 'i', 3 + '!'},
		"less text":          {3 + 'H'},
		"no tokens of it":    {-1},
		"tokens of a larger": {3 + 'H', 3 + 'i', 1 << 30},
	} {
		r.ContinuedTokens = begun
		if got, err := b.Render(t.Context(), r); err != nil || got.Prompt != want.Prompt || !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("%s: %q, %v", name, got.Prompt, err)
		}
	}
	r.ContinuedTokens = []int32{3 + 'H', 3 + 'i'}
	if got, err := b.Render(t.Context(), r); err != nil || !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("its own tokens: %q, %v", got.Prompt, err)
	}
	r.Continue = false
	if a := b.ask(r); a.code() != fault.CodeInvalid {
		t.Errorf("tokens of no message: %v", a.err)
	}
}

// An answer that a model ended goes on where the end is banned once, and a request with that place
// writes all of it again.
func TestContinue_GoesOnWhereTheEndIsBannedOnce(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	b.onLogits = func(logits []float32, _ int32) { logits[toyEnd] = 12 } // likely, not certain
	r := thinkerRequest()
	r.Params.Temperature, r.Params.TopK, r.Params.TopP, r.Params.MinP, r.Params.Seed, r.MaxTokens = 1, 0, 1, 0, 7, 400
	first := b.ask(r)
	ids := first.ids()
	if first.done.EndToken == nil || len(ids) == 0 {
		t.Fatalf("the answer did not end by an end token: %+v, %d tokens", first.done, len(ids))
	}
	next := r
	next.Continue, next.ContinuedTokens = true, ids
	next.Messages = append(slices.Clone(r.Messages), chat.Message{Role: "assistant", Content: hear(t, first).text})
	if again := b.ask(next); len(again.tokens) != 0 || again.done.EndToken == nil {
		t.Errorf("without a ban the same seed goes on with %d tokens", len(again.tokens))
	}
	next.BannedEnds = []int{0}
	on := b.ask(next)
	if len(on.tokens) == 0 || !slices.Equal(on.done.Receipt.BannedEnds, next.BannedEnds) {
		t.Fatalf("with the ban come %d tokens, and the receipt is %+v", len(on.tokens), on.done.Receipt)
	}
	r.BannedEnds = []int{len(ids)}
	if whole := b.ask(r).ids(); !slices.Equal(whole, append(ids, on.ids()...)) {
		t.Errorf("in one go it writes %d tokens, in two %d and %d", len(whole), len(ids), len(on.tokens))
	}
	r.BannedEnds = []int{-1}
	if a := b.ask(r); a.code() != fault.CodeInvalid {
		t.Errorf("a place before the first token gives %v", a.err)
	}
}

func TestContinue_KeepsToTheFormThatTheAnswerBeganWith(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	for _, c := range []struct {
		name string
		set  func(*infer.Request)
		is   func(text string) bool
	}{
		{"a schema", func(r *infer.Request) { r.JSONSchema = json.RawMessage(formSchema) }, func(text string) bool {
			return validJSON(json.RawMessage(formSchema), text) == nil
		}},
		{"a grammar", func(r *infer.Request) { r.Grammar = `root ::= ("ab" | "cd"){8} "é"` }, func(text string) bool {
			return len(text) == 18 && strings.HasSuffix(text, "é")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := thinkerRequest()
			r.Params.Temperature, r.Params.Seed, r.MaxTokens = 1.5, 7, 400
			c.set(&r)
			answer := hear(t, b.ask(r))
			whole := b.ask(r).ids()
			if !c.is(answer.text) {
				t.Fatalf("the answer is %q", answer.text)
			}
			for n := 1; n < len(whole); n++ {
				r.MaxTokens = n
				first := b.ask(r)
				begun := hear(t, first)
				next := r
				next.Continue, next.ContinueForm, next.MaxTokens = true, true, 400
				next.Messages = append(slices.Clone(r.Messages), chat.Message{Role: "assistant", Content: begun.text})
				next.ContinuedTokens = whole[:n]
				if got := b.ask(next).ids(); !slices.Equal(got, whole[n:]) {
					t.Errorf("behind %d tokens come %d, want %d", n, got, whole[n:])
				}
				next.ContinuedTokens = nil
				if strings.HasSuffix(begun.text, string(utf8.RuneError)) {
					continue // the first byte of a character
				}
				if rest := hear(t, b.ask(next)); !c.is(begun.text + rest.text) {
					t.Errorf("behind the text %q comes %q", begun.text, rest.text)
				}
			}
			r.Messages = append(slices.Clone(r.Messages), chat.Message{Role: "assistant", Content: "Well"})
			r.Continue, r.ContinueForm = true, true
			if got := b.ask(r); got.err == nil || !strings.Contains(got.err.Error(), "the beginning of the answer does not match") {
				t.Errorf("another beginning gives %q, %v", got.text, got.err)
			}
			if r.ContinueForm = false; b.ask(r).err != nil {
				t.Errorf("what follows another beginning cannot have the form: %v", b.ask(r).err)
			}
		})
	}
}
