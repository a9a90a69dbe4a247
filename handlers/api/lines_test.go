package api

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/sample"
)

func TestLines_AnAnswerEndsAtALineThatIsIndentedByLess(t *testing.T) {
	for _, c := range []struct {
		name   string
		least  int
		pieces []string
		want   string
		over   bool
	}{
		{"one line", 4, []string{"a", " = 1"}, "a = 1", false},
		{"lines that are indented enough", 4, []string{"if a:\n", "        b()\n", "    c()"}, "if a:\n        b()\n    c()", false},
		{"a line that is not", 4, []string{"b()\n", "  ", "c()", "\n    d()"}, "b()\n  ", true},
		{"a line in the middle of a token", 4, []string{"b()\ndef c", "()"}, "b()\n", true},
		{"tabs count as one each", 2, []string{"b\n\t\tc\n\td"}, "b\n\t\tc\n\t", true},
		{"an empty line", 1, []string{"b\n", "\n", " c"}, "b\n", true},
		{"spaces in the middle of a line do not count", 2, []string{"b\n  c", "  d\n", " e"}, "b\n  c  d\n ", true},
		{"the first line may begin anywhere", 8, []string{"b"}, "b", false},
		{"no limit", 0, []string{"b\n\nc\n"}, "b\n\nc\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var line currentLine
			var text strings.Builder
			over := false
			for _, piece := range c.pieces {
				var part string
				part, over = line.read(piece, c.least)
				if text.WriteString(part); over {
					break
				}
			}
			if text.String() != c.want || over != c.over {
				t.Errorf("got %q, over: %t; want %q, %t", text.String(), over, c.want, c.over)
			}
		})
	}
}

// writing returns an engine that writes words, one each 100 ms, and sets cancelled when nobody wants more.
func writing(words []string, stopped *bool) func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			if !yield(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 7, Total: 7, Cached: 3}}, nil) {
				return
			}
			for i, word := range words {
				if i > 0 {
					time.Sleep(100 * time.Millisecond)
				}
				if !yield(infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: int32(i)}, Text: word}}, nil) {
					*stopped = true
					return
				}
			}
			yield(infer.Event{Type: infer.EventDone, Done: &infer.Done{Text: "!"}}, nil)
		}
	}
}

func TestLines_AnAnswerEndsWhenItsTimeIsOverAndALineIs(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits lineLimits
		words  []string
		want   string
		cut    bool
	}{
		{"no limits", lineLimits{}, []string{"a", "\n", "b", "c"}, "a\nbc!", false},
		{"it has an end before", lineLimits{within: time.Second}, []string{"a", "\n", "b", "c"}, "a\nbc!", false},
		{"the time is over after a line break", lineLimits{within: 250 * time.Millisecond}, []string{"a", "\n", "b", "c", "d"}, "a\nbc", true},
		{"the time is over in the first line", lineLimits{within: 50 * time.Millisecond}, []string{"a", "b", "c", "\n", "d"}, "abc\n", true},
		{"one line", lineLimits{within: 50 * time.Millisecond}, []string{"a", "b", "c"}, "abc!", false},
		{"a line is indented by less", lineLimits{indent: 2}, []string{"a\n", "b", "c"}, "a\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text, tokens, stopped := "", 0, false
				var done *infer.Done
				r := infer.DefaultRequest()
				r.Params.Seed = 5
				for e, err := range c.limits.apply(t.Context(), r, writing(c.words, &stopped)) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Token != nil {
						text += e.Token.Text
						tokens++
					}
					if e.Done != nil {
						done, text = e.Done, text+e.Done.Text
					}
				}
				if text != c.want || done == nil || stopped != c.cut || (done.Reason == infer.FinishLength) != c.cut {
					t.Fatalf("got %q, want %q; the engine was stopped: %t; %+v", text, c.want, stopped, done)
				}
				if c.cut && (done.Usage.PromptTokens != 7 || done.Usage.CachedTokens != 3 || done.Usage.CompletionTokens != tokens || done.Receipt.Params.Seed != 5 || done.Timings.Decode != time.Duration(tokens-1)*100*time.Millisecond) {
					t.Errorf("it ends with %+v after %d tokens", done, tokens)
				}
			})
		})
	}
}

func TestLines_AFailureIsPassedOn(t *testing.T) {
	failure := errors.New("it failed")
	failing := func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) { yield(infer.Event{}, failure) }
	}
	for _, err := range (lineLimits{indent: 1}).apply(t.Context(), infer.Request{}, failing) {
		if !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOnlyFields(t *testing.T) {
	whole := map[string]any{"content": "a", "timings": map[string]any{"prompt_n": 3}, "tokens": []int{1}}
	for _, c := range []struct {
		paths []string
		want  []string
	}{
		{[]string{"content"}, []string{"content"}},
		{[]string{"content", "timings/prompt_n", "timings/other", "content/x", "missing"}, []string{"content", "timings/prompt_n"}},
		{[]string{"timings"}, []string{"timings"}},
		{[]string{"missing"}, nil},
	} {
		got, err := onlyFields(whole, c.paths)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for name := range got.(LlamaFields) {
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, c.want) {
			t.Errorf("%v: got %v, want %v", c.paths, names, c.want)
		}
	}
}
