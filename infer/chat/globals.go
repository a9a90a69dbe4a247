package chat

import (
	"fmt"
	"strings"
	"time"
)

// globals returns the functions that every template can call.
func globals() map[string]value {
	m := map[string]value{}
	for name, call := range map[string]func(in *interp, a args) value{
		"range":           rangeOf,
		"dict":            func(in *interp, a args) value { return in.makeDict(a) },
		"namespace":       func(in *interp, a args) value { return &namespace{in.makeDict(a)} },
		"joiner":          joiner,
		"cycler":          cycler,
		"raise_exception": raise,
		"strftime_now": func(in *interp, a args) value {
			return in.strftime(a.bind("strftime_now", "format").text(0))
		},
	} {
		m[name] = &callable{name: name, call: call}
	}
	return m
}

func (in *interp) strftime(format text) text {
	in.budget.alloc(8 * len(format.s))
	b := in.builder()
	b.literal(strftime(in.now, format.s))
	return markedLike(b.take().s, format)
}

func raise(in *interp, a args) value {
	throw(&RaisedError{Message: shorten(in.str(a.bind("raise_exception", "message").need(0)).s)})
	return nil
}

func rangeOf(in *interp, a args) value {
	p := a.bind("range", "start", "stop", "step")
	start, stop, step := 0, p.int(0, 0), p.int(2, 1)
	p.need(0)
	if p.given[1] {
		start, stop = stop, p.int(1, 0)
	}
	if step == 0 {
		fail("range() arg 3 must not be zero")
	}
	n := 0
	switch {
	case step > 0 && stop > start:
		n = (stop - start + step - 1) / step
	case step < 0 && stop < start:
		n = (start - stop - step - 1) / -step
	}
	if n > maxRange {
		throw(overLimit("range", maxRange, "items"))
	}
	in.budget.alloc(n * (itemSize + numberSize))
	items := make([]value, n)
	for i := range items {
		items[i] = int64(start + i*step)
	}
	return &list{items: items, bounds: &rangeBounds{start, stop, step}}
}

// makeDict is dict(mapping or pairs, name=value, …).
func (in *interp) makeDict(a args) *dict {
	d := newDict()
	if len(a.pos) > 1 {
		fail("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		pairs := []value{}
		if src, ok := a.pos[0].(*dict); ok {
			pairs = in.pairs(src)
		} else {
			pairs = in.iterate(a.pos[0])
		}
		for _, e := range pairs {
			kv := in.iterate(e)
			if len(kv) != 2 {
				fail("dict: each item must be a pair, this one has %d", len(kv))
			}
			in.put(d, kv[0], kv[1])
		}
	}
	for i, name := range a.names {
		in.put(d, name, a.vals[i])
	}
	return d
}

// joiner returns a function that gives the separator, but nothing the first time.
func joiner(_ *interp, a args) value {
	sep := a.bind("joiner", "sep").get(0, literal(", "))
	used := false
	return &callable{name: "joiner", call: func(in *interp, a args) value {
		if !used {
			used = true
			return text{}
		}
		return sep
	}}
}

// cycler goes round its arguments.
func cycler(_ *interp, a args) value {
	if len(a.pos) == 0 {
		fail("at least one item has to be provided")
	}
	at := 0
	return &callable{name: "cycler", call: func(*interp, args) value {
		fail("a cycler is not callable: call its method next")
		return nil
	}, attr: func(name string) value {
		switch name {
		case "current":
			return a.pos[at]
		case "next":
			return &callable{name: name, call: func(*interp, args) value {
				v := a.pos[at]
				at = (at + 1) % len(a.pos)
				return v
			}}
		case "reset":
			return &callable{name: name, call: func(*interp, args) value {
				at = 0
				return nil
			}}
		}
		return missing("'Cycler object' has no attribute '%s'", name)
	}}
}

// strftime formats a time as C's strftime does in the C locale, with the GNU flag
// "-" for numbers without padding. What it does not know it leaves as it is.
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
