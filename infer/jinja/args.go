package jinja

// args are the arguments of one call.
type args struct {
	pos   []Value
	names []Text  // of the keyword arguments; those of **kwargs may come from the caller
	vals  []Value // of the keyword arguments
}

// params are arguments sorted by the parameters of the builtin fn.
type params struct {
	fn    string
	names []string
	vals  []Value
	given []bool
}

// bind sorts the arguments by the parameter names of the builtin fn.
func (a args) bind(fn string, names ...string) params {
	p := params{fn, names, make([]Value, len(names)), make([]bool, len(names))}
	if len(a.pos) > len(names) {
		fail("%s takes at most %d argument(s), got %d", fn, len(names), len(a.pos))
	}
	for i, v := range a.pos {
		p.vals[i], p.given[i] = v, true
	}
next:
	for i, name := range a.names {
		for j, n := range names {
			if n != name.s {
				continue
			}
			if p.given[j] {
				fail("%s got several values for argument '%s'", fn, name.s)
			}
			p.vals[j], p.given[j] = a.vals[i], true
			continue next
		}
		fail("%s got an unexpected keyword argument '%s'", fn, name.s)
	}
	return p
}

// get returns argument i, or otherwise if it was not given.
func (p params) get(i int, otherwise Value) Value {
	if !p.given[i] {
		return otherwise
	}
	return p.vals[i]
}

// need returns argument i. It fails the rendering if the argument was not given.
func (p params) need(i int) Value {
	if !p.given[i] {
		fail("%s is missing its argument '%s'", p.fn, p.names[i])
	}
	return p.vals[i]
}

func (p params) truth(i int, otherwise bool) bool { return truth(p.get(i, otherwise)) }

// int returns argument i, limited to -maxSlice..maxSlice.
func (p params) int(i, otherwise int) int {
	v := p.get(i, int64(otherwise))
	n, ok := smallInt(v)
	if !ok {
		fail("%s: argument '%s' must be an integer, not %s", p.fn, p.names[i], TypeName(v))
	}
	return int(min(max(n, -maxSlice), maxSlice))
}

// count returns argument i; -1 for None, which means no limit.
func (p params) count(i int) int {
	if p.get(i, nil) == nil {
		return -1
	}
	return p.int(i, -1)
}

func (p params) text(i int) Text {
	v := p.need(i)
	t, ok := v.(Text)
	if !ok {
		fail("%s: argument '%s' must be str, not %s", p.fn, p.names[i], TypeName(v))
	}
	return t
}

// textOr returns argument i, or otherwise if it was not given or is None.
func (p params) textOr(i int, otherwise string) Text {
	if p.get(i, nil) == nil {
		return Literal(otherwise)
	}
	return p.text(i)
}
