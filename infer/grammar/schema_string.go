package grammar

import (
	"fmt"
	"strings"
)

// formats are the formats of JSON Schema that the rules hold to, as patterns. Where a
// format allows what hardly anybody writes, the pattern leaves it out.
var formats = map[string]string{
	"date":      "^" + datePattern + "$",
	"time":      "^" + timePattern + "$",
	"date-time": "^" + datePattern + "T" + timePattern + "$",
	"duration":  `^P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,2}M([0-9]{1,2}D)?|[0-9]{1,3}D(T[0-9]{1,2}H)?|T([0-9]{1,3}H([0-9]{1,2}M([0-9]{1,2}S)?)?|[0-9]{1,3}M([0-9]{1,2}S)?|[0-9]{1,4}S))$`,
	"uuid":      "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
	"ipv4":      `^` + octetPattern + `(\.` + octetPattern + `){3}$`,
	"ipv6":      "^[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}$",
	"hostname":  "^" + hostPattern + "$",
	"email":     `^[A-Za-z0-9]([A-Za-z0-9_+-]{0,20}[A-Za-z0-9])?(\.[A-Za-z0-9]{1,20}){0,2}@` + hostPattern + "$",
	"uri":       `^https?://` + hostPattern + `(:[1-9][0-9]{0,3})?(/[A-Za-z0-9_~.-]{0,60}){0,20}(\?[A-Za-z0-9_~.&=-]{1,100})?(#[A-Za-z0-9_~.-]{1,60})?$`,
}

const (
	yearPattern  = "[0-9]{4}"
	leapPattern  = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
	datePattern  = "(" + yearPattern + "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" + leapPattern + "-02-29)"
	timePattern  = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
	octetPattern = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
	labelPattern = "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"
	hostPattern  = labelPattern + `(\.` + labelPattern + `){0,3}\.[a-z]{2,10}`
)

// refusedFormats are those that JSON Schema defines and the rules cannot hold to.
var refusedFormats = map[string]bool{
	"idn-email": true, "idn-hostname": true, "uri-reference": true, "iri": true, "iri-reference": true, "uri-template": true,
	"json-pointer": true, "relative-json-pointer": true, "regex": true,
}

// string writes the strings of an alternative.
func (w *schemaWriter) string(c conjunction) (string, error) {
	low, high := c.largest("minLength", 0), c.smallest("maxLength", unbounded)
	source, pattern, err := c.pattern()
	switch {
	case err != nil:
		return "", err
	case low > high:
		return "", nil
	case low > maxRepeat:
		return "", failAt(c.all("minLength")[0], "minLength is supported up to %d", maxRepeat)
	case source != nil:
		return w.pattern(c, source, pattern, low, high)
	case low == 0 && high == unbounded:
		return w.share("string"), nil
	}
	if high < unbounded {
		high = min(high, maxRepeat)
	}
	return fmt.Sprintf(`"\"" %s%s "\""`, w.share("char"), times(low, high)), nil
}

// pattern returns the one pattern that a string must match, and the keyword it comes
// from, nil for none.
func (c conjunction) pattern() (source *value, pattern string, err error) {
	for _, v := range c {
		for _, m := range v.members {
			text := m.text
			switch m.name {
			case "pattern":
			case "format":
				if refusedFormats[m.text] {
					return nil, "", failAt(m.value, "the format %s is not supported", m.text)
				}
				if text = formats[m.text]; text == "" {
					continue
				}
			default:
				continue
			}
			if source != nil && text != pattern {
				return nil, "", failAt(m.value, "a string can have one pattern or format only: write one pattern that stands for both")
			}
			source, pattern = m.value, text
		}
	}
	return source, pattern, nil
}

// pattern writes the strings that match a pattern and have from low to high
// characters.
func (w *schemaWriter) pattern(c conjunction, source *value, pattern string, low, high int) (string, error) {
	p, err := parsePattern(pattern)
	if err != nil {
		return "", failAt(source, "the pattern cannot be used: %s", err)
	}
	if !p.fit(low, high) {
		keyword := append(c.all("minLength"), c.all("maxLength")...)[0]
		return "", failAt(keyword, "this length is not supported beside that pattern or format: write the length into the pattern, as {m,n}")
	}
	var b strings.Builder
	p.write(&b, func() string { return w.share("char") })
	if strings.Contains(b.String(), "[]") {
		return "", failAt(source, "the pattern cannot be used: it has a class with no characters")
	}
	return fmt.Sprintf(`"\"" (%s) "\""`, b.String()), nil
}
