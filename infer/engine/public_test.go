package engine

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf/gguftest"
)

// asking returns a request of a person with a question and a system prompt; empty: it has none.
func asking(scope, system, question string, public bool) infer.Request {
	r := infer.DefaultRequest()
	r.CacheScope, r.PublicSystem, r.MaxTokens, r.Params.Temperature = scope, public, 2, 0
	if system != "" {
		r.Messages = append(r.Messages, chat.Message{Role: "system", Content: system})
	}
	r.Messages = append(r.Messages, chat.Message{Role: "user", Content: question})
	return r
}

func publicBench(t *testing.T, template string) *bench {
	return newBench(t, func(b *bench, o *Options) {
		b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Template: template, Context: 2048})
	})
}

func TestCache_IsSharedWithinAPersonAndOfTemplatesAndPublicSystemPrompts(t *testing.T) {
	const block = device.BlockSize
	house, other := strings.Repeat("You answer in the style of the house. ", 4), strings.Repeat("Another prompt of a person's own. ", 4)
	long := strings.Repeat("The launch code is four words long. ", 4)
	header := "{{ 'This model was made for the examples of this test and for nothing else.' }}" + gguftest.ChatML
	for _, tc := range []struct {
		name          string
		template      string
		first, second infer.Request
		least, most   int // cached tokens of the second
	}{
		{"a person's question is shared with the same person", "", asking("anna", "", long, false), asking("anna", "", long, false), 100, 1000},
		{"it is not shared with another person", "", asking("anna", "", long, false), asking("ben", "", long, false), 0, 0},
		{"a person's own system prompt is not shared with another person", "", asking("anna", other, long, false), asking("ben", other, long, false), 0, 0},
		{"a system prompt that only the second request marks as public is not shared", "", asking("anna", house, long, false), asking("ben", house, long, true), 0, 0},
		{"the blocks that a public system prompt fills are shared with all", "", asking("anna", house, long, true), asking("ben", house, "short", true), 3 * block, len(house) + block},
		{"the question after a public system prompt is not shared with another person", "", asking("anna", house, long, true), asking("ben", house, long, true), 3 * block, len(house) + block},
		{"a public system prompt is shared with a request that does not mark it", "", asking("anna", house, long, true), asking("ben", house, long, false), 3 * block, len(house) + block},
		{"the template's own text is shared with all", header, asking("anna", "", long, false), asking("ben", "", long, false), block, 80},
		{"requests without a scope share with each other", "", asking("", "", long, false), asking("", "", long, false), 100, 1000},
		{"requests without a scope do not share with a person", "", asking("", "", long, false), asking("anna", "", long, false), 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := publicBench(t, tc.template)
			first, second := b.ask(tc.first), b.ask(tc.second)
			if first.err != nil || second.err != nil {
				t.Fatal(first.err, second.err)
			}
			if n := second.done.Usage.CachedTokens; n < tc.least || n > tc.most {
				t.Errorf("%d tokens of %d were cached, want %d to %d", n, second.done.Usage.PromptTokens, tc.least, tc.most)
			}
		})
	}
}

func TestCache_TheTokensOfAChatFindWhatItsMessagesLeft(t *testing.T) {
	b := publicBench(t, "")
	r := asking("anna", strings.Repeat("You answer in the style of the house. ", 4), "Why is the sky blue?", true)
	view, err := b.Render(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	b.ask(r)
	again := request(view.Tokens, 2)
	again.CacheScope = "anna"
	if got := b.ask(again).done.Usage.CachedTokens; got != len(view.Tokens)-1 {
		t.Errorf("%d of %d tokens were cached, want all but the last", got, len(view.Tokens))
	}
}

// A person who guesses what another one wrote sees the same count of cached tokens for a right guess as for a wrong one.
func TestCache_CountsTellNobodyWhatAnotherPersonWrote(t *testing.T) {
	b := publicBench(t, "")
	secret := func(i int) string {
		return fmt.Sprintf("%s the password of the safe is %08x, keep it", strings.Repeat("Dear diary, ", 3), i*2654435761)
	}
	for i := range 12 {
		b.ask(asking("anna", "", secret(i), false))
	}
	told := 0
	for i := range 12 {
		right, wrong := asking(fmt.Sprint("right", i), "", secret(i), false), asking(fmt.Sprint("wrong", i), "", secret(i+100), false)
		view, err := b.Render(t.Context(), right)
		if err != nil {
			t.Fatal(err)
		}
		tokens := request(view.Tokens, 2) // without a template
		tokens.CacheScope = fmt.Sprint("tokens", i)
		for _, r := range []infer.Request{right, wrong, tokens} {
			if b.ask(r).done.Usage.CachedTokens != 0 {
				told++
			}
		}
	}
	if told > 0 {
		t.Errorf("%d of 36 guesses found something in the cache", told)
	}
}

func TestScheduler_APersonDoesNotWaitForThePrefixOfAnother(t *testing.T) {
	for _, tc := range []struct {
		name  string
		scope string
		runs  bool
	}{
		{"one of the same person waits, to share it", "anna", false},
		{"one of another computes it", "ben", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestScheduler(limits{4, 8, 8}, 64, 4)
			first, second := newSequence("m", span(0, 22), false), newSequence("m", span(0, 22), false)
			first.audience.scope, second.audience.scope = "anna", tc.scope
			s.add(first)
			s.run(s.schedule())
			s.add(second)
			s.schedule()
			if second.started != tc.runs {
				t.Errorf("it runs: %v, want %v", second.started, tc.runs)
			}
		})
	}
}

func TestStates_SnapshotsAreSharedAsBlocksAre(t *testing.T) {
	s := newStates(8, 1000, 32)
	slot := s.take(noSlot)
	s.save(slot, span(0, 64), audience{"anna", 64}, false)
	s.save(slot, span(0, 96), audience{"anna", 64}, false)
	for scope, want := range map[string]int{"anna": 96, "ben": 64} {
		if _, n := s.snapshot(span(0, 100), scope); n != want {
			t.Errorf("%s goes on behind %d tokens, want %d", scope, n, want)
		}
	}
	s.discard(span(0, 96), "ben")
	if _, n := s.snapshot(span(0, 100), "anna"); n != 96 {
		t.Errorf("what is discarded for ben takes all but %d tokens of anna's", n)
	}
}
