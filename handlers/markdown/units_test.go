package markdown

import "testing"

func TestUTF16Length(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "ü": 1, "€": 1, "😀": 2} {
		if got := UTF16Length(text); got != want {
			t.Errorf("UTF16Length(%q) = %d, want %d", text, got, want)
		}
	}
}
