package markdown

import "unicode/utf8"

// UTF16Length returns the length of s in UTF-16 code units, as JavaScript counts it.
func UTF16Length(s string) int {
	n := utf8.RuneCountInString(s)
	for _, r := range s {
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
