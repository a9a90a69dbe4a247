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
	return derived(b.take().s, format)
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
	return &list{items: items, span: &span{start, stop, step}}
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

func timeField(t time.Time, c byte) (string, bool) {
	hour12 := (t.Hour()+11)%12 + 1
	isoYear, isoWeek := t.ISOWeek()
	number := func(pattern string, n int) (string, bool) { return fmt.Sprintf(pattern, n), true }
	switch c {
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006"), true
	case 'C':
		return number("%02d", t.Year()/100)
	case 'd':
		return t.Format("02"), true
	case 'D', 'x':
		return t.Format("01/02/06"), true
	case 'e':
		return t.Format("_2"), true
	case 'f':
		return number("%06d", t.Nanosecond()/1000)
	case 'F':
		return t.Format("2006-01-02"), true
	case 'g':
		return number("%02d", isoYear%100)
	case 'G':
		return number("%d", isoYear)
	case 'H':
		return t.Format("15"), true
	case 'I':
		return number("%02d", hour12)
	case 'j':
		return number("%03d", t.YearDay())
	case 'k':
		return number("%2d", t.Hour())
	case 'l':
		return number("%2d", hour12)
	case 'm':
		return t.Format("01"), true
	case 'M':
		return t.Format("04"), true
	case 'n':
		return "\n", true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'r':
		return t.Format("03:04:05 PM"), true
	case 'R':
		return t.Format("15:04"), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'S':
		return t.Format("05"), true
	case 't':
		return "\t", true
	case 'T', 'X':
		return t.Format("15:04:05"), true
	case 'u':
		return number("%d", (int(t.Weekday())+6)%7+1)
	case 'U':
		return number("%02d", (t.YearDay()+6-int(t.Weekday()))/7)
	case 'V':
		return number("%02d", isoWeek)
	case 'w':
		return number("%d", int(t.Weekday()))
	case 'W':
		return number("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
	case 'y':
		return t.Format("06"), true
	case 'Y':
		return number("%d", t.Year())
	case 'z', 'Z':
		return "", true // the time that templates see names no zone
	case '%':
		return "%", true
	}
	return "", false
}
