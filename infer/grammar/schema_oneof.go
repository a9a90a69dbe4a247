package grammar

import "slices"

// checkOneOf refuses alternatives of which two might be valid at once, because a
// grammar cannot say "this and not that".
func (w *schemaWriter) checkOneOf(list *value) error {
	options := make([][]conjunction, len(list.items))
	for i, item := range list.items {
		var err error
		if options[i], err = w.alternatives(item); err != nil {
			return err
		}
	}
	for i := range options {
		for j := range i {
			apart, err := w.apart(options[j], options[i], 0)
			if err != nil {
				return err
			}
			if !apart {
				return failAt(list, "a value might be valid by number %d and by number %d of oneOf at once: use anyOf, or tell them apart by type or by a required property with const", j, i)
			}
		}
	}
	return nil
}

// apart reports whether what the rules write for one of a can never be valid by one
// of b, nor the other way round.
func (w *schemaWriter) apart(a, b []conjunction, depth int) (bool, error) {
	for _, x := range a {
		for _, y := range b {
			for _, pair := range [][2]conjunction{{x, y}, {y, x}} {
				if out, err := w.outside(pair[0], pair[1], depth); err != nil || !out {
					return false, err
				}
			}
		}
	}
	return true, nil
}

// outside reports whether nothing that the rules write for c can be valid by d. What it
// says of c may rest on what the rules leave out, what it says of d may not.
func (w *schemaWriter) outside(c, d conjunction, depth int) (bool, error) {
	written, err := c.kinds()
	if err != nil {
		return false, err
	}
	valid, err := d.declared()
	if err != nil {
		return false, err
	}
	values, listed := c.enumerated(written)
	allowed, limited := d.enumerated(valid)
	if listed && limited {
		return !slices.ContainsFunc(values, func(v *value) bool {
			return slices.ContainsFunc(allowed, func(o *value) bool { return o.encode(true) == v.encode(true) })
		}), nil
	}
	if listed {
		written = kindsOf(values)
	}
	if limited {
		valid = kindsOf(allowed)
	}
	switch both := written & valid; {
	case both == 0:
		return true, nil
	case both != kindObject || listed || limited:
		return false, nil
	}
	return w.objectsOutside(c, d, depth)
}

func kindsOf(values []*value) (kinds valueKind) {
	for _, v := range values {
		kinds |= v.kind
	}
	return kinds
}

// maxApart is how deep oneOf looks into objects to tell them apart.
const maxApart = 3

// objectsOutside is outside for objects: one property decides.
func (w *schemaWriter) objectsOutside(c, d conjunction, depth int) (bool, error) {
	written, _, closed, err := c.properties()
	if err != nil {
		return false, err
	}
	valid, _, _, err := d.properties()
	if err != nil {
		return false, err
	}
	find := func(list []property, name string) *property {
		i := slices.IndexFunc(list, func(p property) bool { return p.name == name })
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	for _, p := range valid {
		if p.required && closed && find(written, p.name) == nil {
			return true, nil
		}
	}
	for _, p := range written {
		if !p.required {
			continue
		}
		q := find(valid, p.name)
		if q == nil {
			if d.forbids(p.name) {
				return true, nil
			}
			continue
		}
		if depth == maxApart {
			continue
		}
		x, err := w.alternativesOf(p.schema)
		if err != nil {
			return false, err
		}
		y, err := w.alternativesOf(q.schema)
		if err != nil {
			return false, err
		}
		if out, err := w.allOutside(x, y, depth+1); err != nil || out {
			return out, err
		}
	}
	return false, nil
}

func (w *schemaWriter) allOutside(a, b []conjunction, depth int) (bool, error) {
	for _, x := range a {
		for _, y := range b {
			if out, err := w.outside(x, y, depth); err != nil || !out {
				return false, err
			}
		}
	}
	return true, nil
}

// forbids reports whether a schema says that there is no such property.
func (c conjunction) forbids(name string) bool {
	for _, v := range c {
		others := v.get("additionalProperties")
		if others != nil && others.kind == kindBool && !others.truth && v.get("properties").getOrNil(name) == nil {
			return true
		}
	}
	return false
}
