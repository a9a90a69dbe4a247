package lang

import (
	"context"
	"testing"
)

func TestMatch(t *testing.T) {
	for header, want := range map[string]Language{
		"":                               English,
		"*":                              English,
		"de":                             German,
		"de-CH, de;q=0.9, en;q=0.8":      German,
		"en-GB, en;q=0.9, de;q=0.8":      English,
		"fr-FR, fr;q=0.9, de;q=0.5":      German,
		"fr, it":                         English,
		"de;q=0, en":                     English,
		"de;q=0.2, en;q=0.9":             English,
		"not a language; de, ,, \x00 q=": English,
	} {
		if got := Match(header); got != want {
			t.Errorf("Match(%q) = %q, want %q", header, got, want)
		}
	}
}

func TestTheLanguageIsThatOfTheContext(t *testing.T) {
	english := context.Background()
	german := With(english, German)
	for _, c := range []struct{ got, want string }{
		{T(english, "Copied"), "Copied"},
		{T(german, "Copied"), "Kopiert"},
		{T(german, "no text of the catalogue"), "no text of the catalogue"},
		{T(english, "%s of %s", "1", "2"), "1 of 2"},
		{T(english, "100 %"), "100 %"},
		{N(english, 1, "%d chat", "%d chats", 1), "1 chat"},
		{N(english, 0, "%d chat", "%d chats", 0), "0 chats"},
		{string(Of(english)), "en"},
		{string(Of(german)), "de"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
