package upstream

import (
	"encoding/base64"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSaid bounds what a person is shown of a server's words, in bytes.
const maxSaid = 300

// said returns a server's words for an error: one line of at most maxSaid bytes, quoted.
func said(text string) string {
	var line strings.Builder
	space := false
	for _, r := range strings.ToValidUTF8(text, "\ufffd") {
		if unicode.IsSpace(r) || unicode.IsControl(r) || !unicode.IsPrint(r) {
			space = line.Len() > 0
			continue
		}
		if space {
			line.WriteByte(' ')
			space = false
		}
		if line.Len()+utf8.RuneLen(r) > maxSaid {
			line.WriteString("…")
			break
		}
		line.WriteRune(r)
	}
	return "“" + line.String() + "”"
}

// said returns the words of this server for an error or the log, without the key that it was sent.
func (s *server) said(text string) string {
	const enough = 16 * maxSaid // bytes that are looked at: most of a text can be what is not shown
	return said(withoutKey(text[:min(len(text), enough)], s.key))
}

// short returns a name that the server sent, or nothing if it is not a name, or has a part of the key.
func (s *server) short(name string) string {
	if !isName(name, 64) || withoutKey(name, s.key) != name {
		return ""
	}
	return name
}

// isName reports whether a text that a server sent can be shown as it is: one line of at most limit bytes.
func isName(text string, limit int) bool { return len(text) <= limit && said(text) == "“"+text+"”" }

// leastShown is the length of the shortest part of a key that is taken out of a text, in bytes, if the key is longer.
const leastShown = 8

// withoutKey returns text with "[key]" for the key, and for each part of it of at least half its bytes: servers cut
// what they quote. Of a key that is no common word, letters of either case count as equal, and it counts as it is written in
// addresses and in base64 too.
func withoutKey(text, key string) string {
	if key == "" {
		return text
	}
	forms := writtenForms(key)
	var out strings.Builder
	for at := 0; at < len(text); {
		n := 0
		for _, form := range forms {
			n = max(n, partAt(text[at:], form, min(len(form), max(leastShown, (len(form)+1)/2))))
		}
		if n == 0 {
			out.WriteByte(text[at])
			at++
			continue
		}
		out.WriteString("[key]")
		at += n
	}
	return out.String()
}

// writtenForms returns a key as servers may write it: as it is, escaped as in an address, and as base64 has it after any
// other text, such as "user:" of basic authentication.
func writtenForms(key string) []string {
	forms := []string{key}
	if escaped := url.QueryEscape(key); escaped != key {
		forms = append(forms, escaped)
	}
	if len(key) < leastShown {
		return forms
	}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", before) + key))
		// The characters at the ends have bits of the text before and after the key.
		inner := encoded[(8*before+5)/6 : (8*(before+len(key)))/6]
		forms = append(forms, inner, strings.NewReplacer("+", "-", "/", "_").Replace(inner))
	}
	return forms
}

// partAt returns how many bytes at the beginning of text are a part of key, the longest of at least least bytes; 0: none.
func partAt(text, key string, least int) (longest int) {
	for from := 0; from+least <= len(key); from++ {
		n := 0
		for n < len(text) && from+n < len(key) && (text[n] == key[from+n] || least >= leastShown && lower(text[n]) == lower(key[from+n])) {
			n++
		}
		if n >= least {
			longest = max(longest, n)
		}
	}
	return longest
}

// lower returns an ASCII letter as a small one, and other bytes as they are.
func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
