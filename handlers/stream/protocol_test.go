package stream

import (
	"testing"
)

func TestUTF16Length(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "ü": 1, "€": 1, "😀": 2} {
		if got := utf16Length(text); got != want {
			t.Errorf("utf16Length(%q) = %d, want %d", text, got, want)
		}
	}
}
