package markdown

import "unicode/utf8"

// UTF16Length is the length of s as scripts in browsers count it.
func UTF16Length(s string) int {
	n := utf8.RuneCountInString(s)
	for _, r := range s {
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
