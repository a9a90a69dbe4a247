package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFilter(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain text stays", "héllo, 日本 🎉\n\tnext", "héllo, 日本 🎉\n\tnext"},
		{"a colour is removed", "a\x1b[31mred\x1b[0mb", "aredb"},
		{"a screen clear is removed", "\x1b[2J\x1b[Htext", "text"},
		{"the eight-bit form of a control sequence is removed", "a\u009b31mb", "ab"},
		{"a window title is removed up to its bell", "a\x1b]0;title\x07b", "ab"},
		{"a window title is removed up to its string terminator", "a\x1b]0;title\x1b\\b", "ab"},
		{"the eight-bit form of a command string is removed", "a\u009d0;title\u009cb", "ab"},
		{"a clipboard write is removed", "\x1b]52;c;cm0gLXJm\x07x", "x"},
		{"a link keeps its text alone", "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"a device control string is removed", "\x1bP+q544e\x1b\\x", "x"},
		{"a two-character escape is removed", "a\x1bcb", "ab"},
		{"a character set choice is removed", "a\x1b(0b", "ab"},
		{"carriage return, backspace, bell and delete are removed", "a\r\b\x07\x7fb", "ab"},
		{"other C1 controls are removed", "a\u0085\u008db", "ab"},
		{"an unfinished command string ends with its line", "a\x1b]0;title\nb", "a\nb"},
		{"an unfinished control sequence ends with its line", "a\x1b[31\nb", "a\nb"},
		{"an endless command string does not swallow the answer", "\x1b]" + strings.Repeat("x", maxSequence) + "end", "end"},
		{"a control sequence with a foreign character in it ends there", "\x1b[3日", "日"},
		{"a sequence inside a sequence is removed", "\x1b[3\x1b[31mx", "x"},
		{"bytes that are no UTF-8 become the replacement character", "a\x9b31mb\xff", "a\uFFFD31mb\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := new(Filter).Text(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !utf8.ValidString(c.in) {
				return
			}
			var f Filter
			var pieces strings.Builder
			for _, r := range c.in {
				pieces.WriteString(f.Text(string(r)))
			}
			if pieces.String() != c.want {
				t.Errorf("in pieces got %q, want %q", pieces.String(), c.want)
			}
		})
	}
	t.Run("a line has no line breaks", func(t *testing.T) {
		if got := Line("a\nb\tc\x1b[1md"); got != "a b cd" {
			t.Errorf("got %q", got)
		}
	})
}

func FuzzTermFilter(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31m", "\u009b1m", "\x1b]0;t\x07", "\x1bP\x1b\\", "\xff\x9b", "\x1b\x1b[", "日本\u0085"} {
		f.Add(s, len(s)/2)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		whole := new(Filter).Text(s)
		for _, r := range whole {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f {
				t.Fatalf("%q lets %U through", s, r)
			}
		}
		if !utf8.ValidString(whole) {
			t.Fatalf("%q gives %q, which is not UTF-8", s, whole)
		}
		if cut = min(max(cut, 0), len(s)); !utf8.ValidString(s[:cut]) || !utf8.ValidString(s[cut:]) {
			return
		}
		var pieces Filter
		if got := pieces.Text(s[:cut]) + pieces.Text(s[cut:]); got != whole {
			t.Fatalf("%q cut at %d gives %q, whole %q", s, cut, got, whole)
		}
	})
}
