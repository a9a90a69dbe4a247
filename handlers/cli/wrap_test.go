package cli

import (
	"strings"
	"testing"
)

// shown returns the lines that a terminal shows for what was written to it.
func shown(written string) string {
	lines := [][]rune{nil}
	for written != "" {
		last := len(lines) - 1
		var n int
		if rest, ok := strings.CutPrefix(written, "\x1b["); ok && rest[0] >= '0' && rest[0] <= '9' {
			number, after, _ := strings.Cut(rest, "D")
			for _, d := range number {
				n = 10*n + int(d-'0')
			}
			lines[last] = lines[last][:len(lines[last])-n]
			written = strings.TrimPrefix(after, "\x1b[K")
			continue
		}
		r := []rune(written)[0]
		written = written[len(string(r)):]
		if r == '\n' {
			lines = append(lines, nil)
			continue
		}
		lines[last] = append(lines[last], r)
	}
	var text []string
	for _, l := range lines {
		text = append(text, strings.TrimRight(string(l), " "))
	}
	return strings.Join(text, "\n")
}

func TestWrapper(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a word that does not fit moves to the next line", "one two three four", "one two\nthree\nfour"},
		{"a text that fits stays", "one two", "one two"},
		{"a line break of the text begins a new line", "one\ntwo four five", "one\ntwo four\nfive"},
		{"the space at the end of a full line is not shown", "one two 34567 8", "one two\n34567 8"},
		{"a word that is longer than a line is broken", "a 12345678901234567 b", "a\n123456789\n01234567\nb"},
		{"wide characters are broken anywhere", "日本語日本語", "日本語日\n本語"},
		{"indentation stays", "  one\n  two", "  one\n  two"},
		{"the lines of a code block are left to the terminal", "```go\na := one(two)\n```\none two three", "```go\na := one(two)\n```\none two\nthree"},
		{"accents take no columns", "e\u0301e\u0301e\u0301 one two", "e\u0301e\u0301e\u0301 one\ntwo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, len(c.in)} {
				var out strings.Builder
				w := &wrapper{w: &out, width: 10}
				for piece := []rune(c.in); len(piece) > 0; piece = piece[min(size, len(piece)):] {
					if _, err := w.Write([]byte(string(piece[:min(size, len(piece))]))); err != nil {
						t.Fatal(err)
					}
				}
				if got := shown(out.String()); got != c.want {
					t.Errorf("in pieces of %d it shows %q, want %q", size, got, c.want)
				}
			}
		})
	}
}
