package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats a time as C's strftime does in the C locale, with the GNU flag "-" for
// numbers without padding. Unknown conversions are copied.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		s, ok := timeField(t, format[i])
		switch {
		case !ok:
			s = format[i-1 : i+1]
			if bare {
				s = "%" + s
			}
		case bare:
			if trimmed := strings.TrimLeft(s, "0 "); trimmed != "" {
				s = trimmed
			} else if s != "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}

// timeLayouts are the conversions of strftime that a layout of package time can state.
var timeLayouts = map[byte]string{
	'a': "Mon",
	'A': "Monday",
	'b': "Jan",
	'B': "January",
	'c': "Mon Jan _2 15:04:05 2006",
	'd': "02",
	'D': "01/02/06",
	'e': "_2",
	'F': "2006-01-02",
	'h': "Jan",
	'H': "15",
	'm': "01",
	'M': "04",
	'n': "\n",
	'p': "PM",
	'P': "pm",
	'r': "03:04:05 PM",
	'R': "15:04",
	'S': "05",
	't': "\t",
	'T': "15:04:05",
	'x': "01/02/06",
	'X': "15:04:05",
	'y': "06",
	'z': "", // the time that templates see has no zone
	'Z': "",
	'%': "%",
}

// timeNumbers are the other conversions: a format and the number that it prints.
var timeNumbers = map[byte]struct {
	format string
	number func(t time.Time) int
}{
	'C': {"%02d", func(t time.Time) int { return t.Year() / 100 }},
	'f': {"%06d", func(t time.Time) int { return t.Nanosecond() / 1000 }},
	'g': {"%02d", func(t time.Time) int { year, _ := t.ISOWeek(); return year % 100 }},
	'G': {"%d", func(t time.Time) int { year, _ := t.ISOWeek(); return year }},
	'I': {"%02d", hour12},
	'j': {"%03d", time.Time.YearDay},
	'k': {"%2d", time.Time.Hour},
	'l': {"%2d", hour12},
	's': {"%d", func(t time.Time) int { return int(t.Unix()) }},
	'u': {"%d", func(t time.Time) int { return daysSinceMonday(t) + 1 }},
	'U': {"%02d", func(t time.Time) int { return (t.YearDay() + 6 - int(t.Weekday())) / 7 }},
	'V': {"%02d", func(t time.Time) int { _, week := t.ISOWeek(); return week }},
	'w': {"%d", func(t time.Time) int { return int(t.Weekday()) }},
	'W': {"%02d", func(t time.Time) int { return (t.YearDay() + 6 - daysSinceMonday(t)) / 7 }},
	'Y': {"%d", time.Time.Year},
}

func hour12(t time.Time) int { return (t.Hour()+11)%12 + 1 }

func daysSinceMonday(t time.Time) int { return (int(t.Weekday()) + 6) % 7 }

// timeField formats one conversion; false if there is no such conversion.
func timeField(t time.Time, c byte) (string, bool) {
	if layout, ok := timeLayouts[c]; ok {
		return t.Format(layout), true
	}
	if f, ok := timeNumbers[c]; ok {
		return fmt.Sprintf(f.format, f.number(t)), true
	}
	return "", false
}
