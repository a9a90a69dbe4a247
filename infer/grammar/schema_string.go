package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// formats are the patterns of the supported formats of JSON Schema. They omit rare forms
// that a format allows.
var formats = map[string]string{
	"date":      "^" + datePattern + "$",
	"time":      "^" + timePattern + "$",
	"date-time": "^" + datePattern + "T" + timePattern + "$",
	"duration":  `^P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,2}M([0-9]{1,2}D)?|[0-9]{1,3}D(T[0-9]{1,2}H)?|T([0-9]{1,3}H([0-9]{1,2}M([0-9]{1,2}S)?)?|[0-9]{1,3}M([0-9]{1,2}S)?|[0-9]{1,4}S))$`,
	"uuid":      "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
	"ipv4":      `^` + octetPattern + `(\.` + octetPattern + `){3}$`,
	"ipv6":      "^[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}$",
	"hostname":  "^" + hostPattern + "$",
	"email":     "^" + emailPattern + "$",
	"uri":       "^" + uriPattern + "$",

	"idn-email":             "^" + emailPattern + "$",
	"idn-hostname":          "^" + hostPattern + "$",
	"uri-reference":         "^(" + uriPattern + "|" + pathPattern + ")$",
	"iri":                   "^" + uriPattern + "$",
	"iri-reference":         "^(" + uriPattern + "|" + pathPattern + ")$",
	"uri-template":          "^" + uriPattern + "$",
	"json-pointer":          "^" + pathPattern + "$",
	"relative-json-pointer": "^(0|[1-9][0-9]{0,3})(#|" + pathPattern + ")$",
}

// widerFormats replace formats next to a pattern, which may require what formats omits.
var widerFormats = map[string]string{
	"uuid": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}

// formatsWithLength replace formats next to minLength or maxLength. Their parts have no own
// lengths, which would multiply the states of the automaton.
var formatsWithLength = map[string]string{
	"email":    "^" + openWord + "@" + openWord + `\.[a-z]{2,10}$`,
	"hostname": "^" + openWord + `\.[a-z]{2,10}$`,
	"uri":      "^https?://" + openWord + `\.[a-z]{2,10}(/[A-Za-z0-9_~.-]*)*(\?[A-Za-z0-9_~.&=-]+)?(#[A-Za-z0-9_~.-]+)?$`,
}

const (
	maxLabel = 63 // characters of a label of a host name
	openWord = "[a-z0-9]+([.-][a-z0-9]+)*"

	yearPattern  = "[0-9]{4}"
	leapPattern  = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
	datePattern  = "(" + yearPattern + "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" + leapPattern + "-02-29)"
	timePattern  = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
	octetPattern = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
	labelPattern = "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"
	hostPattern  = labelPattern + `(\.` + labelPattern + `){0,3}\.[a-z]{2,10}`
	emailPattern = `[A-Za-z0-9]([A-Za-z0-9_+-]{0,20}[A-Za-z0-9])?(\.[A-Za-z0-9]{1,20}){0,2}@` + hostPattern
	uriPattern   = `https?://` + hostPattern + `(:[1-9][0-9]{0,3})?(/[A-Za-z0-9_~.-]{0,60}){0,20}(\?[A-Za-z0-9_~.&=-]{1,100})?(#[A-Za-z0-9_~.-]{1,60})?`
	pathPattern  = `(/[A-Za-z0-9_.-]{0,60}){0,20}`
)

// string writes the strings of an alternative.
func (w *schemaWriter) string(c conjunction) (string, error) {
	low, high := c.maxCount("minLength", 0), c.minCount("maxLength", unbounded)
	switch {
	case low > high:
		return "", nil
	case low > maxRepeat:
		return "", failAt(c.all("minLength")[0], "minLength is supported up to %d", maxRepeat)
	}
	forms, err := w.patternsOf(c)
	if err != nil {
		return "", err
	}
	if len(forms) > 0 {
		return w.withPatterns(c, forms, low, high)
	}
	return w.anyString(low, high), nil
}

// anyString writes the strings of low to high characters.
func (w *schemaWriter) anyString(low, high int) string {
	if low == 0 && high == unbounded {
		return w.sharedRule("string")
	}
	if high < unbounded {
		high = min(high, maxRepeat)
	}
	return fmt.Sprintf(`"\"" %s%s "\""`, w.sharedRule("char"), times(low, high))
}

// stringPattern is the pattern of a keyword pattern or format.
type stringPattern struct {
	source  *value // the value of the keyword
	pattern string
}

// patternsOf returns the different patterns of an alternative, then those of its formats.
func (w *schemaWriter) patternsOf(c conjunction) (forms []stringPattern, err error) {
	add := func(source *value, pattern string) {
		if !slices.ContainsFunc(forms, func(f stringPattern) bool { return f.pattern == pattern }) {
			forms = append(forms, stringPattern{source, pattern})
		}
	}
	patterns := c.all("pattern")
	for _, p := range patterns {
		add(p, p.text)
	}
	for _, f := range c.all("format") {
		pattern := formats[f.text]
		if wider := widerFormats[f.text]; wider != "" && len(patterns) > 0 {
			pattern = wider
		}
		switch {
		case pattern != "":
			add(f, pattern)
		case len(patterns) == 0: // next to a pattern, an unknown format is ignored
			if err := w.ignore(f, "the format %q is not supported", shorten(f.text)); err != nil {
				return nil, err
			}
		}
	}
	return forms, nil
}

// withPatterns writes the strings of low to high characters that match all patterns. If they
// cannot be combined, it ignores formats first, then the length, then patterns.
func (w *schemaWriter) withPatterns(c conjunction, forms []stringPattern, low, high int) (string, error) {
	if len(forms) == 1 {
		if body, ok := w.plainPattern(forms[0].pattern, low, high); ok {
			return body, nil
		}
	}
	length := append(c.all("minLength"), c.all("maxLength")...)
	if len(length) > 0 && low <= maxLabel {
		for i, f := range forms {
			if open := formatsWithLength[f.source.text]; f.source.name == "format" && open != "" {
				forms[i].pattern, high = open, min(high, maxLabel)
			}
		}
	}
	for {
		body, err := w.withAllPatterns(forms, low, high)
		if !errors.As(err, new(*patternError)) {
			return body, err
		}
		last := len(forms) - 1
		problem, _ := errors.AsType[*patternError](err)
		if problem.form >= 0 {
			last = problem.form
		}
		source := forms[last].source
		if problem.form < 0 && len(length) > 0 && !(source.name == "format" && len(forms) > 1) {
			for _, keyword := range length {
				if err := w.ignore(keyword, "this length is not supported with that pattern or format: %s; write the length into the pattern, as {m,n}", err); err != nil {
					return "", err
				}
			}
			low, high, length = 0, unbounded, nil
			continue
		}
		if source.name == "format" && len(forms) > 1 {
			w.omit(source) // also in strict: the pattern replaces the format
		} else if err := w.ignore(source, "the %s %s", source.name, err); err != nil {
			return "", err
		}
		if forms = slices.Delete(slices.Clone(forms), last, last+1); len(forms) == 0 {
			return w.anyString(low, high), nil
		}
		if len(forms) == 1 {
			if body, ok := w.plainPattern(forms[0].pattern, low, high); ok {
				return body, nil
			}
		}
	}
}

// patternError is the reason why patterns cannot be enforced.
type patternError struct {
	form    int // index of the pattern; -1 for their combination
	problem string
}

func (e *patternError) Error() string { return e.problem }

// unsupportedPattern is the message for a pattern with unsupported assertions.
const unsupportedPattern = "the pattern cannot be enforced: it has a lookbehind, a word boundary, or a lookahead within a repetition"

// withAllPatterns is withPatterns, but ignores only unsupported assertions. It returns a
// *patternError if the patterns cannot be combined.
func (w *schemaWriter) withAllPatterns(forms []stringPattern, low, high int) (string, error) {
	w.languages = newLanguages(w.spend)
	all := []*language{w.languages.repeat(w.languages.chars(anyRune), low, high)}
	withFormat := false
	for i, f := range forms {
		p, err := parsePattern(f.pattern)
		if err != nil {
			return "", &patternError{i, "cannot be used: " + err.Error()}
		}
		a, loose := w.languages.pattern(p)
		if loose {
			if err := w.ignore(f.source, "%s", unsupportedPattern); err != nil {
				return "", err
			}
		}
		withFormat = withFormat || f.source.name == "format"
		all = append(all, a)
	}
	rule, err := w.language(w.languages.and(all...))
	switch {
	case errors.Is(err, errLanguage):
		return "", &patternError{-1, "cannot be used: " + err.Error()}
	case err != nil:
		return "", err
	case rule == "" && withFormat && len(forms) > 1:
		return "", &patternError{-1, "has no string in common with the pattern"}
	case rule == "":
		return "", nil
	}
	return fmt.Sprintf(`"\"" %s "\""`, rule), nil
}

// plainPattern writes the strings of low to high characters that match a pattern; false if
// the pattern is not plain or the length cannot be written into it.
func (w *schemaWriter) plainPattern(text string, low, high int) (string, bool) {
	p, err := parsePlainPattern(text)
	if err != nil || !p.fit(low, high) {
		return "", false
	}
	var b strings.Builder
	p.write(&b, func() string { return w.sharedRule("char") })
	if strings.Contains(b.String(), "[]") {
		return "", false
	}
	return fmt.Sprintf(`"\"" (%s) "\""`, b.String()), true
}

// validString reports whether a string has the length and matches the patterns of an
// alternative, as far as they can be enforced.
func (w *schemaWriter) validString(c conjunction, text string) (bool, error) {
	if n := utf8.RuneCountInString(text); n < c.maxCount("minLength", 0) || n > c.minCount("maxLength", unbounded) {
		return false, nil
	}
	forms, err := w.patternsOf(c)
	if err != nil {
		return false, err
	}
	for _, f := range forms {
		if has, err := w.matches(f.source, f.pattern, text); err != nil || !has {
			return false, err
		}
	}
	return true, nil
}

// patternMatcher matches strings with a pattern.
type patternMatcher struct {
	*languages
	language *language // nil if the pattern is ignored
}

// matches reports whether text matches the pattern of a keyword; true if the pattern is
// ignored.
func (w *schemaWriter) matches(source *value, pattern, text string) (bool, error) {
	t := w.patternMatchers[pattern]
	if t == nil {
		t = &patternMatcher{languages: newLanguages(w.spend)}
		w.patternMatchers[pattern] = t
		p, err := parsePattern(pattern)
		if err != nil {
			if err := w.ignore(source, "the pattern cannot be used: %s", err); err != nil {
				return false, err
			}
		} else {
			t.language, _ = t.pattern(p)
		}
	}
	if t.language == nil {
		return true, nil
	}
	if err := w.spend(len(text)); err != nil {
		return false, err
	}
	has, err := t.contains(t.language, text)
	if errors.Is(err, errLanguage) {
		return true, w.ignore(source, "the pattern cannot be used: %s", err)
	}
	return has, err
}
