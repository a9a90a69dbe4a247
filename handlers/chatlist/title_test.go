package chatlist

import (
	"strings"
	"testing"
)

func TestTheTitleOfAChatIsItsFirstMessageWithoutFiles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Hello", "Hello"},
		{"  a\n b ", "a b"},
		{strings.Repeat("word ", 30), strings.TrimSpace(strings.Repeat("word ", 15)) + " word…"},
		{strings.Repeat("ü", 100), strings.Repeat("ü", 80) + "…"},
		{"What is it?\n\nFile add.go:\n```go\nfunc add()\n```", "What is it?"},
		{"File add.go:\n````go\n```\n````\n\nFile b.go:\n```go\n```", "add.go"},
		{"File it under letters:\nplease", "File it under letters: please"},
	} {
		if got := TitleOf(c.text); got != c.want {
			t.Errorf("title of %q is %q, want %q", c.text, got, c.want)
		}
	}
}
