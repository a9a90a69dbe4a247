package blocks

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestBlocksEndWhereNothingCanChangeThem(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string // the last is the open end
	}{
		{"nothing", []string{""}},
		{"a paragraph without a blank line is open", []string{"one\ntwo\n"}},
		{"a paragraph ends at a blank line", []string{"one\n\n", "two"}},
		{"a blank line may hold spaces", []string{"one\n \n", "two"}},
		{"a heading ends at its line", []string{"# one\n", "two"}},
		{"a heading ends the paragraph before it", []string{"one\n", "# two\n", "three"}},
		{"seven signs are no heading", []string{"####### one\n"}},
		{"a fence ends at its like", []string{"```go\na\n\nb\n```\n", "c"}},
		{"a longer fence is not ended by a shorter one", []string{"````\na\n```\n\nb\n````\n", "c"}},
		{"a fence of tildes is not ended by backticks", []string{"~~~\na\n```\nb\n~~~\n", ""}},
		{"a fence ends the paragraph before it", []string{"one\n", "```\ntwo\n```\n", ""}},
		{"a fence without end is open", []string{"```\na\n\n\nb\n"}},
		{"backticks within a line are no fence", []string{"```a```\n\n", "b"}},
		{"a list goes on after a blank line", []string{"- a\n\n- b\n\n  c\n\n", "d\n"}},
		{"a list ends the paragraph before it", []string{"one:\n", "1. a\n2. b\n\n", "two\n"}},
		{"a number that is not one ends no paragraph", []string{"in\n1990. It was\n\n", ""}},
		{"bold text is no list", []string{"**a**\n\n", "b"}},
		{"indented code goes on after a blank line", []string{"    a\n\n    b\n\n", "c\n"}},
		{"carriage returns do no harm", []string{"one\r\n\r\n", "```\r\na\r\n```\r\n", ""}},
		{"blank lines at the start belong to what follows", []string{"\n\none\n\n", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Split(strings.Join(c.want, ""))
			if strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBlocksDoNotDependOnHowTheTextArrives(t *testing.T) {
	line := rapid.SampledFrom([]string{"", "word", "# head", "- item", "1. item", "```", "~~~~", "    code", "  ", "> quote", "*x*"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(line, 0, 20).Draw(t, "lines"), "\n")
		want := Split(text)
		if strings.Join(want, "") != text {
			t.Fatalf("the blocks of %q are %q, which is another text", text, want)
		}
		var s Splitter
		var got []string
		for i := range len(text) + 1 {
			for {
				begin := s.start
				end := s.Next(text[:i])
				if end == 0 {
					break
				}
				got = append(got, text[begin:end])
			}
		}
		got = append(got, text[s.start:])
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("byte by byte the blocks of %q are %q, at once %q", text, got, want)
		}
	})
}
