package grammar

import "slices"

// checkOneOf ignores a oneOf of which two alternatives may be valid at once, because a
// grammar cannot exclude what another alternative allows.
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
			disjoint, err := w.disjoint(options[j], options[i], 0)
			if err != nil {
				return err
			}
			if !disjoint {
				return w.ignore(list, "a value may be valid by the alternatives %d and %d of oneOf at once: use anyOf, or make them differ in type or in a required property with const", j, i)
			}
		}
	}
	return nil
}

// disjoint reports whether no value that the rules allow for an alternative of a is valid by
// an alternative of b, nor the reverse.
func (w *schemaWriter) disjoint(a, b []conjunction, depth int) (bool, error) {
	for _, x := range a {
		for _, y := range b {
			if err := w.spend(len(x) + len(y)); err != nil {
				return false, err
			}
			for _, pair := range [][2]conjunction{{x, y}, {y, x}} {
				if out, err := w.excluded(pair[0], pair[1], depth); err != nil || !out {
					return false, err
				}
			}
		}
	}
	return true, nil
}

// excluded reports whether no value that the rules allow for c is valid by d. The rules may
// allow less than c does, but d counts in full.
func (w *schemaWriter) excluded(c, d conjunction, depth int) (bool, error) {
	if err := w.spend(8); err != nil {
		return false, err
	}
	written, err := c.kinds()
	if err != nil {
		return false, err
	}
	valid, err := d.allowedKinds()
	if err != nil {
		return false, err
	}
	values, listed, err := w.enumValues(c, written)
	if err != nil {
		return false, err
	}
	allowed, limited, err := w.enumValues(d, valid)
	if err != nil {
		return false, err
	}
	if listed && limited {
		codes := make(map[string]bool, len(allowed))
		for _, o := range allowed {
			codes[w.canonicalTexts[o]] = true
		}
		return !slices.ContainsFunc(values, func(v *value) bool { return codes[w.canonicalTexts[v]] }), nil
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
	return w.objectsExcluded(c, d, depth)
}

func kindsOf(values []*value) (kinds valueKind) {
	for _, v := range values {
		kinds |= v.kind
	}
	return kinds
}

// maxOneOfDepth is the depth of nested objects up to which alternatives of oneOf are compared.
const maxOneOfDepth = 3

// objectsExcluded reports the same for objects: one required property is enough.
func (w *schemaWriter) objectsExcluded(c, d conjunction, depth int) (bool, error) {
	written, err := w.objectShape(c)
	if err != nil {
		return false, err
	}
	valid, err := w.objectShape(d)
	if err != nil {
		return false, err
	}
	if err := w.spend(len(written.list) + len(valid.list)); err != nil {
		return false, err
	}
	for _, p := range valid.list {
		if p.required && written.closed && written.find(p.name) == nil {
			return true, nil
		}
	}
	for _, p := range written.list {
		if !p.required {
			continue
		}
		q := valid.find(p.name)
		if q == nil {
			if d.forbids(p.name) {
				return true, nil
			}
			continue
		}
		if depth == maxOneOfDepth {
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
		if out, err := w.allExcluded(x, y, depth+1); err != nil || out {
			return out, err
		}
	}
	return false, nil
}

func (w *schemaWriter) allExcluded(a, b []conjunction, depth int) (bool, error) {
	for _, x := range a {
		for _, y := range b {
			if out, err := w.excluded(x, y, depth); err != nil || !out {
				return false, err
			}
		}
	}
	return true, nil
}

// forbids reports whether a schema forbids a property by additionalProperties.
func (c conjunction) forbids(name string) bool {
	for _, v := range c {
		others := v.get("additionalProperties")
		if others != nil && others.kind == kindBool && !others.truth && v.get("properties").getOrNil(name) == nil && v.get("patternProperties") == nil {
			return true
		}
	}
	return false
}
