package jinja

// test reports whether v is name(arguments).
func (in *interp) test(name string, v Value, a args) bool {
	if op, ok := comparisons[name]; ok {
		return in.compare(op, v, a.bind(name, "other").need(0))
	}
	test, ok := tests[name]
	if !ok {
		fail("no test named '%s'", name)
	}
	return test.holds(in, v, a.bind(name, test.params...))
}

// testDef is a test and the names of its parameters.
type testDef struct {
	holds  func(in *interp, v Value, p params) bool
	params []string
}

// tests are the tests by name, but for the comparisons. They are assigned in init because
// the tests filter and test look names up.
var tests map[string]testDef

func init() {
	tests = map[string]testDef{
		"boolean":     {holds: hasType[bool]},
		"callable":    {holds: isCallable},
		"defined":     {holds: func(_ *interp, v Value, _ params) bool { return !isUndefined(v) }},
		"divisibleby": {isDivisible, []string{"num"}},
		"escaped":     {holds: isEscaped},
		"even":        {holds: hasRemainder(0)},
		"false":       {holds: func(_ *interp, v Value, _ params) bool { return v == false }},
		"filter":      {holds: isFilterName},
		"float":       {holds: hasType[float64]},
		"in":          {func(in *interp, v Value, p params) bool { return in.contains(p.need(0), v) }, []string{"seq"}},
		"integer":     {holds: isInteger},
		"iterable":    {holds: func(_ *interp, v Value, _ params) bool { return iterable(v) }},
		"lower":       {holds: hasOnlyCase(isLower)},
		"mapping":     {holds: hasType[*Dict]},
		"none":        {holds: func(_ *interp, v Value, _ params) bool { return v == nil }},
		"number":      {holds: func(_ *interp, v Value, _ params) bool { return isNumber(v) }},
		"odd":         {holds: hasRemainder(1)},
		"sameas":      {func(in *interp, v Value, p params) bool { return in.same(v, p.need(0)) }, []string{"other"}},
		"sequence":    {holds: isSequence},
		"string":      {holds: hasType[Text]},
		"test":        {holds: isTestName},
		"true":        {holds: func(_ *interp, v Value, _ params) bool { return v == true }},
		"undefined":   {holds: func(_ *interp, v Value, _ params) bool { return isUndefined(v) }},
		"upper":       {holds: hasOnlyCase(isUpper)},
	}
}

func hasType[T Value](_ *interp, v Value, _ params) bool {
	_, ok := v.(T)
	return ok
}

func isCallable(_ *interp, v Value, _ params) bool {
	switch v.(type) {
	case *callable, *undefined:
		return true
	}
	return false
}

func isSequence(_ *interp, v Value, _ params) bool {
	switch v.(type) {
	case Text, *List, *Dict, *undefined:
		return true
	}
	return false
}

func isEscaped(_ *interp, v Value, _ params) bool {
	t, ok := v.(Text)
	return ok && t.safe
}

func isInteger(_ *interp, v Value, _ params) bool {
	_, isBool := v.(bool)
	_, isInt := integer(v)
	return isInt && !isBool
}

func isDivisible(in *interp, v Value, p params) bool {
	return in.equal(in.arithmetic("%", v, p.need(0)), int64(0))
}

// hasRemainder returns a test for integers that leave a remainder when divided by two.
func hasRemainder(remainder int64) func(in *interp, v Value, _ params) bool {
	return func(in *interp, v Value, _ params) bool {
		return in.equal(in.arithmetic("%", v, int64(2)), remainder)
	}
}

// hasOnlyCase returns a test for values that print letters with case, all of which is holds for.
func hasOnlyCase(is func(rune) bool) func(in *interp, v Value, _ params) bool {
	return func(in *interp, v Value, _ params) bool {
		s := in.str(v).s
		in.budget.scan(len(s))
		return cased(s, is)
	}
}

func isFilterName(_ *interp, v Value, _ params) bool {
	t, isText := v.(Text)
	_, known := filters[t.s]
	return isText && known
}

func isTestName(_ *interp, v Value, _ params) bool {
	t, isText := v.(Text)
	_, known := tests[t.s]
	_, compares := comparisons[t.s]
	return isText && (known || compares)
}

// comparisons are the operators of the tests that compare.
var comparisons = map[string]string{
	"==": "==", "eq": "==", "equalto": "==",
	"!=": "!=", "ne": "!=",
	"<": "<", "lt": "<", "lessthan": "<",
	"<=": "<=", "le": "<=",
	">": ">", "gt": ">", "greaterthan": ">",
	">=": ">=", "ge": ">=",
}

// same evaluates Python's a is b, except where the result depends on how Python stores values.
func (in *interp) same(a, b Value) bool {
	switch x := a.(type) {
	case *List:
		if !x.tuple {
			return a == b
		}
	case *Dict:
		return a == b
	}
	return TypeName(a) == TypeName(b) && in.equal(a, b)
}
