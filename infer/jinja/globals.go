package jinja

// globals returns the functions that every template can call.
func globals() map[string]Value {
	m := map[string]Value{}
	for name, call := range map[string]func(in *interp, a args) Value{
		"range":           rangeOf,
		"dict":            func(in *interp, a args) Value { return in.makeDict(a) },
		"namespace":       func(in *interp, a args) Value { return &namespace{in.makeDict(a)} },
		"joiner":          joiner,
		"cycler":          cycler,
		"raise_exception": raise,
		"strftime_now": func(in *interp, a args) Value {
			return in.strftime(a.bind("strftime_now", "format").text(0))
		},
	} {
		m[name] = &callable{name: name, call: call}
	}
	return m
}

func (in *interp) strftime(format Text) Text {
	in.budget.alloc(8 * len(format.s))
	b := in.builder()
	b.literal(strftime(in.now, format.s))
	return markedLike(b.take().s, format)
}

func raise(in *interp, a args) Value {
	throw(&RaisedError{Message: shorten(in.str(a.bind("raise_exception", "message").need(0)).s)})
	return nil
}

func rangeOf(in *interp, a args) Value {
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
	items := make([]Value, n)
	for i := range items {
		items[i] = int64(start + i*step)
	}
	return &List{Items: items, bounds: &rangeBounds{start, stop, step}}
}

// makeDict evaluates dict(mapping or pairs, name=value, …).
func (in *interp) makeDict(a args) *Dict {
	d := NewDict()
	if len(a.pos) > 1 {
		fail("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		pairs := []Value{}
		if src, ok := a.pos[0].(*Dict); ok {
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

// joiner returns a function that returns an empty text the first time, then the separator.
func joiner(_ *interp, a args) Value {
	sep := a.bind("joiner", "sep").get(0, Literal(", "))
	used := false
	return &callable{name: "joiner", call: func(in *interp, a args) Value {
		if !used {
			used = true
			return Text{}
		}
		return sep
	}}
}

// cycler returns an object whose method next returns its arguments in turn.
func cycler(_ *interp, a args) Value {
	if len(a.pos) == 0 {
		fail("at least one item has to be provided")
	}
	at := 0
	return &callable{name: "cycler", call: func(*interp, args) Value {
		fail("a cycler is not callable: call its method next")
		return nil
	}, attr: func(name string) Value {
		switch name {
		case "current":
			return a.pos[at]
		case "next":
			return &callable{name: name, call: func(*interp, args) Value {
				v := a.pos[at]
				at = (at + 1) % len(a.pos)
				return v
			}}
		case "reset":
			return &callable{name: name, call: func(*interp, args) Value {
				at = 0
				return nil
			}}
		}
		return missing("'Cycler object' has no attribute '%s'", name)
	}}
}
