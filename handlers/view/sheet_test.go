package view

import (
	"strings"
	"testing"

	"m40-llm/handlers/compare"
	"m40-llm/handlers/live"
	"m40-llm/infer/record"
)

func TestAnAnswerOfASheetThatHasEndedIsRendered(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		parts   int // where it parts from the first answer; 0: it does not
		running bool
		want    string
	}{
		"text without markup is sent as it is": {text: "One line.\n\nAnother.", want: ""},
		"a list":                               {text: "- one\n- two", want: "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"},
		"the place where it parts from the first is marked": {text: "It is **very** good", parts: 11, want: "<p>It is <strong>ver" + PartMark + "y</strong> good</p>\n"},
		"a place in the middle of markup is not":            {text: "It is **very** good", parts: 7, want: "<p>It is <strong>very</strong> good</p>\n"},
		"an answer that is being written is not rendered":   {text: "- one\n- two", running: true, want: ""},
		"markup of a stranger is not passed on":             {text: "**x** <script>alert(1)</script> <img src=x onerror=y>", want: "<p><strong>x</strong> &lt;script&gt;alert(1)&lt;/script&gt; &lt;img src=x onerror=y&gt;</p>\n"},
	} {
		cell := compare.Cell{Index: 1, Text: c.text, SameText: c.parts, Differs: c.parts > 0}
		cell.Answer.State = live.Done
		if c.running {
			cell.Answer.State = live.Writing
		}
		if got := CellHTML(t.Context(), cell); got != c.want && strings.TrimSpace(got) != strings.TrimSpace(c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestASheetSaysWhatReadingThePromptHasTaken(t *testing.T) {
	for name, c := range map[string]struct {
		answers []record.Usage
		want    string
	}{
		"nothing before an answer has read it":                     {[]record.Usage{{}, {}}, ""},
		"its length if one answer has read it":                     {[]record.Usage{{PromptTokens: 26}, {}}, "prompt of 26 tokens"},
		"that answers share it":                                    {[]record.Usage{{PromptTokens: 100}, {PromptTokens: 100, CachedTokens: 96}}, "prompt of 100 tokens, read for 2 answers: 104 computed instead of 200"},
		"that it is too short if several answers share none of it": {[]record.Usage{{PromptTokens: 26}, {PromptTokens: 26}}, "prompt of 26 tokens, too short to be shared"},
	} {
		cells := make([]compare.Cell, len(c.answers))
		for i := range cells {
			cells[i].Answer.Usage = c.answers[i]
		}
		if got := FiguresOf(t.Context(), cells).Prompt; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
