package chat

import (
	"slices"
	"strings"
)

// filterNames and testNames are those that exist, for the tests "filter" and "test".
var (
	filterNames = strings.Fields(`abs attr batch capitalize center count d default dictsort e escape filesizeformat first float
		forceescape format groupby indent int items join last length list lower map max min reject rejectattr replace reverse
		round safe select selectattr slice sort string striptags sum title tojson trim truncate unique upper urlencode wordcount
		wordwrap`)
	testNames = strings.Fields(`boolean callable defined divisibleby eq equalto escaped even false filter float ge greaterthan
		gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string test true undefined upper
		== != < <= > >=`)
)

// test is v is name(arguments).
func (in *interp) test(name string, v value, a args) bool {
	switch name {
	case "filter", "test":
		a.bind(name)
		t, ok := v.(text)
		return ok && slices.Contains(map[string][]string{"filter": filterNames, "test": testNames}[name], t.s)
	case "in":
		return in.contains(a.bind(name, "seq").need(0), v)
	case "sameas":
		return in.same(v, a.bind(name, "other").need(0))
	case "divisibleby":
		return in.equal(in.arithmetic("%", v, a.bind(name, "num").need(0)), int64(0))
	}
	if op, ok := comparisons[name]; ok {
		return in.compare(op, v, a.bind(name, "other").need(0))
	}
	a.bind(name)
	switch name {
	case "defined", "undefined":
		_, is := v.(*undefined)
		return is == (name == "undefined")
	case "none":
		return v == nil
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "true", "false":
		b, ok := v.(bool)
		return ok && b == (name == "true")
	case "integer":
		_, isBool := v.(bool)
		_, isInt := integer(v)
		return isInt && !isBool
	case "float":
		_, ok := v.(float64)
		return ok
	case "number":
		return isNumber(v)
	case "odd", "even":
		rest := in.arithmetic("%", v, int64(2))
		return in.equal(rest, boolInt(name == "odd"))
	case "string":
		_, ok := v.(text)
		return ok
	case "lower", "upper":
		s := in.str(v).s
		in.budget.scan(len(s))
		return cased(s, map[string]func(rune) bool{"lower": isLower, "upper": isUpper}[name])
	case "escaped":
		t, ok := v.(text)
		return ok && t.safe
	case "mapping":
		_, ok := v.(*dict)
		return ok
	case "sequence":
		switch v.(type) {
		case text, *list, *dict, *undefined:
			return true
		}
		return false
	case "iterable":
		return iterable(v)
	case "callable":
		switch v.(type) {
		case *callable, *undefined:
			return true
		}
		return false
	}
	fail("no test named '%s'", name)
	return false
}

var comparisons = map[string]string{
	"==": "==", "eq": "==", "equalto": "==",
	"!=": "!=", "ne": "!=",
	"<": "<", "lt": "<", "lessthan": "<",
	"<=": "<=", "le": "<=",
	">": ">", "gt": ">", "greaterthan": ">",
	">=": ">=", "ge": ">=",
}

// same is Python's is, as far as it does not depend on how Python stores values.
func (in *interp) same(a, b value) bool {
	switch x := a.(type) {
	case *list:
		if !x.tuple {
			return a == b
		}
	case *dict:
		return a == b
	}
	return typeName(a) == typeName(b) && in.equal(a, b)
}
