package lang

import (
	"cmp"
	"context"
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Errors and notices are English texts with values in them. They come from processes, databases and other servers, and
// programs get them as they are, so the page translates the finished text: the catalogue of messages has the format of each,
// the message is matched with it, and its values are put into the German format. Clauses that are joined with a semicolon, and
// messages inside of messages, are translated by themselves.

//go:embed messages.de.json
var germanMessagesFile []byte

var germanMessages = sync.OnceValue(func() []*message {
	texts, err := parse(germanMessagesFile)
	if err != nil {
		panic(err) // embedded, and tested
	}
	return newMessages(texts)
})

// A longer message, or one with more messages inside of each other, remains English.
const (
	maxMessage = 4 << 10
	maxInside  = 4
)

// Message returns an error's text or a notice in the language of ctx. It returns the text as it is if the catalogue lacks it
// or a message inside of it, so that nobody reads half of it in either language.
func Message(ctx context.Context, text string) string {
	shown, _ := FindMessage(ctx, text)
	return shown
}

// FindMessage returns Message, and whether that is in the language of ctx.
func FindMessage(ctx context.Context, text string) (shown string, found bool) {
	if Of(ctx) != German {
		return text, true
	}
	if len(text) <= maxMessage {
		if german, ok := translate(germanMessages(), text, maxInside); ok {
			return german, true
		}
	}
	return text, false
}

// message is the format of messages.
type message struct {
	german   string
	literals []string // of the English format, around its values
	values   []value
	pattern  func() *regexp.Regexp
}

// value is what a verb of a format formats.
type value struct {
	pattern string
	name    bool // no message: it is a number, in quotation marks, or not in the German text
}

var verb = regexp.MustCompile(`%(?:\[(\d)\])?[-+# 0]*[0-9.]*([a-zA-Z%])`)

// newMessages returns the messages of a catalogue, those first that say most themselves.
func newMessages(texts map[string]string) (list []*message) {
	for english, german := range texts {
		list = append(list, newMessage(english, german))
	}
	slices.SortFunc(list, func(a, b *message) int {
		aText, bText := strings.Join(a.literals, "%"), strings.Join(b.literals, "%")
		return cmp.Or(cmp.Compare(len(bText)-len(b.values), len(aText)-len(a.values)), cmp.Compare(aText, bText))
	})
	return list
}

func newMessage(english, german string) *message {
	m := &message{german: german}
	shown := map[int]bool{} // values that the German text has, by number
	m.with(func(number int) string { shown[number] = true; return "" })
	literal, at := "", 0
	for _, place := range verb.FindAllStringSubmatchIndex(english, -1) {
		literal += english[at:place[0]]
		at = place[1]
		kind := english[place[4]:place[5]]
		if kind == "%" {
			literal += "%"
			continue
		}
		v := value{pattern: `(.*?)`}
		switch kind {
		case "d":
			v = value{`(-?\d+)`, true}
		case "q":
			v = value{`("(?:[^"\\]|\\.)*")`, true}
		case "e", "f", "g":
			v = value{`([-+.\deIafnN]+)`, true}
		default:
			v.name = strings.HasSuffix(literal, "“") || strings.HasSuffix(literal, `"`) || !shown[len(m.values)+1]
		}
		m.literals, m.values = append(m.literals, literal), append(m.values, v)
		literal = ""
	}
	m.literals = append(m.literals, literal+english[at:])
	m.pattern = sync.OnceValue(m.compile)
	return m
}

func (m *message) compile() *regexp.Regexp {
	var b strings.Builder
	for i, literal := range m.literals {
		b.WriteString(regexp.QuoteMeta(literal))
		if i < len(m.values) {
			b.WriteString(m.values[i].pattern)
		}
	}
	return regexp.MustCompile(`(?s)^` + b.String() + `$`)
}

// match returns the values in a text of the format; nil: it has another one.
func (m *message) match(text string) []string {
	for _, literal := range m.literals {
		if !strings.Contains(text, literal) {
			return nil
		}
	}
	return m.pattern().FindStringSubmatch(text)
}

// with returns the German text with the values that value returns, which are numbered from 1.
func (m *message) with(value func(number int) string) string {
	next := 0
	return verb.ReplaceAllStringFunc(m.german, func(found string) string {
		switch parts := verb.FindStringSubmatch(found); {
		case parts[2] == "%":
			return "%"
		case parts[1] != "":
			next, _ = strconv.Atoi(parts[1])
		default:
			next++
		}
		return value(next)
	})
}

// translate returns the German text of a message, in which messages can be inside of each other to a depth.
func translate(list []*message, text string, depth int) (german string, known bool) {
	if depth == 0 || text == "" {
		return "", text == ""
	}
	for _, m := range list {
		if values := m.match(text); values != nil && m.translateInside(list, values[1:], depth-1) {
			return m.with(func(number int) string { return germanValue(values[number]) }), true
		}
	}
	clauses := strings.Split(text, "; ")
	if len(clauses) == 1 {
		return "", false
	}
	for i, clause := range clauses {
		if clauses[i], known = translate(list, clause, depth-1); !known {
			return "", false
		}
	}
	return strings.Join(clauses, "; "), true
}

// translateInside translates those of values that are messages. It returns false if it cannot.
func (m *message) translateInside(list []*message, values []string, depth int) bool {
	for i, v := range m.values {
		if v.name || !strings.Contains(values[i], " ") {
			continue
		}
		if german, known := translate(list, values[i], depth); known {
			values[i] = german
		} else if !isName(values[i]) {
			return false
		}
	}
	return true
}

// germanValue returns a value of a message with German separators if it is a number with groups of digits or with a unit. Any
// other may be a setting or a version.
func germanValue(value string) string {
	if !figure.MatchString(value) {
		return value
	}
	return germanSeparators.Replace(value)
}

var (
	figure  = regexp.MustCompile(`^(\d{1,3}(,\d{3})+|\d+\.\d+ ([kMGT]?B|m?s|tok/s))$`)
	measure = regexp.MustCompile(`^[-\d.,]+ \S+$`)
	word    = regexp.MustCompile(`(^| )[a-z]{2,}\b`)
)

// isName reports whether a text is names, numbers with units or addresses, rather than words.
func isName(text string) bool {
	for part := range strings.SplitSeq(text, ", ") {
		if strings.Contains(part, " ") && word.MatchString(part) && !measure.MatchString(part) {
			return false
		}
	}
	return true
}
