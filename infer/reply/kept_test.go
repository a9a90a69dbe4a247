package reply

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSplitThought_FindsWhatStandsFirst(t *testing.T) {
	for _, c := range []struct {
		name, text    string
		thought, said string
		found         bool
	}{
		{"no thought", "Hello.", "", "Hello.", false},
		{"nothing", "", "", "", false},
		{"as it is kept", "<think>\na\n</think>\n\nb", "a", "b", true},
		{"as a person wrote it", "<think>a</think>b", "a", "b", true},
		{"one without an end", "<think>\na\n\nb", "a\n\nb", "", true},
		{"the first end counts", "<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d", true},
		{"an end that is part of the thought", `<think>a<\/think>b</think>c`, "a</think>b", "c", true},
		{"the tags of a family", "[THINK]a[/THINK]b", "", "[THINK]a[/THINK]b", false},
		{"an answer about the tag", "The tag </think> ends it.", "", "The tag </think> ends it.", false},
		{"an answer that shows both tags", "So:\n<think>\na\n</think>\n", "", "So:\n<think>\na\n</think>\n", false},
	} {
		thought, said, found := SplitThought(c.text)
		if thought != c.thought || said != c.said || found != c.found {
			t.Errorf("%s: got %q, %q, %v", c.name, thought, said, found)
		}
	}
}

func TestKeeper_WritesOneFormHoweverTheAnswerIsCut(t *testing.T) {
	for _, c := range []struct {
		name   string
		deltas []Delta
		want   string
	}{
		{"what was said alone", []Delta{{Content: "Hi."}}, "Hi."},
		{"a thought alone", []Delta{{Reasoning: "Hm."}}, "<think>\nHm."},
		{"both", []Delta{{Reasoning: "Hm.\n\nSo."}, {Content: "Hi."}}, "<think>\nHm.\n\nSo.\n</think>\n\nHi."},
		{"an answer that begins with the tag", []Delta{{Content: "<think> is a tag."}}, "<think></think><think> is a tag."},
		{"an answer that begins like the tag", []Delta{{Content: "<thin ice>"}}, "<thin ice>"},
		{"an answer that ends in the tag's beginning", []Delta{{Content: "<thi"}}, "<thi"},
		{"the tag behind a thought", []Delta{{Reasoning: "a"}, {Content: "<think>"}}, "<think>\na\n</think>\n\n<think>"},
		{"an end in a thought", []Delta{{Reasoning: `a</think><\/think>b</thin`}, {Content: "c"}}, "<think>\n" + `a<\/think><\\/think>b</thin` + "\n</think>\n\nc"},
		{"a thought behind what was said", []Delta{{Content: "a"}, {Reasoning: "\n\nb\nc"}, {Content: "\n\nd"}}, "a\n\n> b\n> c\n\nd"},
		{"one behind a thought and what was said", []Delta{{Reasoning: "a"}, {Content: "b"}, {Reasoning: "c"}}, "<think>\na\n</think>\n\nb\n\n> c"},
	} {
		for seed := range uint64(20) {
			draw, k, got := rand.New(rand.NewPCG(seed, 0)), &Keeper{}, ""
			for _, d := range c.deltas {
				cut := func(text string, add func(string)) {
					for text != "" {
						n := 1 + draw.IntN(len(text))
						add(text[:n])
						text = text[n:]
					}
				}
				cut(d.Reasoning, func(text string) { got += k.Add(Delta{Reasoning: text}) })
				cut(d.Content, func(text string) { got += k.Add(Delta{Content: text}) })
			}
			if got += k.End(); got != c.want {
				t.Fatalf("%s, cut by %d: %q, want %q", c.name, seed, got, c.want)
			}
		}
	}
}

// The slow twin of writing an answer is to read it again.
func TestKeeper_WhatIsKeptIsReadAsItWas(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"<", "think>", "<think>", "</think>", `<\/think>`, "/", `\`, "\n", "\n\n", "a", "> ", "é"}
	text := func() string {
		var b strings.Builder
		for range draw.IntN(6) {
			b.WriteString(pieces[draw.IntN(len(pieces))])
		}
		return b.String()
	}
	for range 3_000 {
		thought, said := text(), text()
		k := &Keeper{}
		kept := k.Add(Delta{Reasoning: thought}) + k.Add(Delta{Content: said}) + k.End()
		gotThought, gotSaid, found := SplitThought(kept)
		want := thought != "" || strings.HasPrefix(said, "<think>")
		if gotThought != thought || gotSaid != said || found != want {
			t.Fatalf("%q and %q are kept as %q, read as %q and %q", thought, said, kept, gotThought, gotSaid)
		}
	}
}

func TestKeepOn_GoesOnWhereTheTextEnds(t *testing.T) {
	for _, c := range []struct {
		text string
		add  Delta
		want string
	}{
		{"", Delta{Reasoning: "a"}, "<think>\na"},
		{"<think>\na", Delta{Reasoning: "b"}, "b"},
		{"<think>\na", Delta{Content: "b"}, "\n</think>\n\nb"},
		{"<think>\na\n</think>\n\nb", Delta{Content: "c"}, "c"},
		{"a", Delta{Content: "<think>"}, "<think>"},
	} {
		k := KeepOn(c.text)
		if got := k.Add(c.add) + k.End(); got != c.want {
			t.Errorf("%q and %+v: %q, want %q", c.text, c.add, got, c.want)
		}
	}
}
