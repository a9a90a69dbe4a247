// Package lang has the texts of the page in the languages that it speaks. The English text is the key of a text; de.json
// has the German one, and messages.de.json those of errors and notices. The language of a page is in the context with which it
// is rendered.
package lang

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/language"
)

// Language is the tag of a language, as in <html lang>.
type Language string

const (
	English Language = "en"
	German  Language = "de"
)

//go:embed de.json
var germanFile []byte

// german returns the German text of each English one.
var german = sync.OnceValue(func() map[string]string {
	texts, err := parse(germanFile)
	if err != nil {
		panic(err) // embedded, and tested
	}
	return texts
})

// parse reads a catalogue.
func parse(file []byte) (texts map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(file))
	if err = d.Decode(&texts); err != nil {
		return nil, fmt.Errorf("failed to read the German texts: %w", err)
	}
	return texts, nil
}

var matcher = language.NewMatcher([]language.Tag{language.English, language.German})

// Match returns the language that suits an Accept-Language header best; English if none does.
func Match(header string) Language {
	tags, _, err := language.ParseAcceptLanguage(header)
	if err != nil {
		return English
	}
	if _, i, confidence := matcher.Match(tags...); i == 1 && confidence > language.No {
		return German
	}
	return English
}

// Parse returns the language with a tag, and whether the page speaks it.
func Parse(tag string) (Language, bool) {
	l := Language(tag)
	return l, l == English || l == German
}

type contextKey struct{}

// With returns a context for pages in a language.
func With(ctx context.Context, l Language) context.Context {
	return context.WithValue(ctx, contextKey{}, l)
}

// Of returns the language of a context: English unless With put another one there.
func Of(ctx context.Context) Language {
	if l, ok := ctx.Value(contextKey{}).(Language); ok {
		return l
	}
	return English
}

// T returns a text in the language of the context, with args in the place of its verbs. text is the English one.
func T(ctx context.Context, text string, args ...any) string {
	if Of(ctx) == German {
		text, args = inGerman(text, args)
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// inGerman returns the German text and what it formats, or the arguments if the catalogue lacks the text.
func inGerman(text string, args []any) (string, []any) {
	german, ok := german()[text]
	if !ok {
		return text, args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if f, ok := arg.(float64); ok {
			args[i] = germanFloat(f)
		}
	}
	return german, args
}

// N returns T of one if n is 1, else of other.
func N(ctx context.Context, n int, one, other string, args ...any) string {
	if n == 1 {
		return T(ctx, one, args...)
	}
	return T(ctx, other, args...)
}

// Key marks a text that is given to T elsewhere, such as one in a table, for the test that looks for all texts. It returns
// the text.
func Key(text string) string { return text }

// Texts returns the texts in a language other than English, of those keys that it has.
func Texts(l Language, keys []string) map[string]string {
	texts := map[string]string{}
	if l != German {
		return texts
	}
	for _, key := range keys {
		if t, ok := german()[key]; ok {
			texts[key] = t
		}
	}
	return texts
}

// dates has the names of days and months in German, where they differ.
var dates = strings.NewReplacer("Mon", "Mo", "Tue", "Di", "Wed", "Mi", "Thu", "Do", "Fri", "Fr", "Sat", "Sa", "Sun", "So", "Jan", "Jan.", "Feb", "Feb.", "Mar", "März", "Apr", "Apr.", "May", "Mai", "Jun", "Juni", "Jul", "Juli", "Aug", "Aug.", "Sep", "Sept.", "Oct", "Okt.", "Nov", "Nov.", "Dec", "Dez.")

// Date formats a time as time.Time.Format does, with the short names of days and months of the language.
func Date(ctx context.Context, at time.Time, layout string) string {
	if Of(ctx) != German {
		return at.Format(layout)
	}
	return dates.Replace(at.Format(strings.Replace(layout, "2 Jan", "2. Jan", 1)))
}
