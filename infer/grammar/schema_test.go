package grammar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fixtures"

	"github.com/dlclark/regexp2/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

type namedSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

func readSchemas(t testing.TB) (list []namedSchema) {
	t.Helper()
	data, err := os.ReadFile("testdata/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// validator returns a third-party JSON Schema validator.
func validator(t testing.TB, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := newCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newCompiler returns a compiler whose patterns match if one of two engines matches. JSON
// Schema has the patterns of ECMA-262, some of which Go's regexp interprets differently
// ({00}, \s, [^]]). regexp2 interprets those correctly, but [\D\D] as no character.
func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseRegexpEngine(func(text string) (jsonschema.Regexp, error) {
		ecma, err := regexp2.Compile(text, regexp2.ECMAScript)
		if err != nil {
			return nil, err
		}
		ecma.MatchTimeout = time.Second
		std, _ := regexp.Compile(text)
		return patterns{ecma, std}, nil
	})
	return c
}

// patterns is a pattern in two engines; std is nil if Go's regexp does not support it.
type patterns struct {
	*regexp2.Regexp
	std *regexp.Regexp
}

// MatchString returns true also if matching takes too long.
func (p patterns) MatchString(s string) bool {
	ok, err := p.Regexp.MatchString(s)
	return ok || err != nil || p.std != nil && p.std.MatchString(s)
}

func schemaProgram(t testing.TB, schema []byte) (*syntax, *program) {
	t.Helper()
	rules, _, err := SchemaRules(context.Background(), "root", schema, true)
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, rules)
}

// draw returns a random text of a grammar, written byte by byte; false if it is too long.
// After a while it prefers the bytes that end the text soonest.
func draw(p *program, random *rand.Rand, most int) (string, bool) {
	s := newStepper(p)
	at := s.start()
	var text []byte
	for len(text) < most {
		if at.accepts && (len(at.positions) == 0 || random.IntN(3) == 0) {
			return string(text), true
		}
		var next []*state
		var bytes []byte
		for class, b := range p.classByte {
			s.work = 0
			after := s.readByte(at, b)
			if after == nil {
				continue
			}
			// Any byte of the class may be written, preferably the ends of its range.
			last := 255
			if class+1 < len(p.classByte) {
				last = int(p.classByte[class+1]) - 1
			}
			next, bytes = append(next, after), append(bytes, byte(int(b)+random.IntN(last-int(b)+1)))
		}
		// White space and escapes have many classes: closing quotes and brackets count more.
		i := random.IntN(len(next))
		if again := random.IntN(len(next)); strings.IndexByte(`"]},`, bytes[again]) >= 0 {
			i = again
		}
		text, at = append(text, bytes[i]), next[i]
	}
	return string(text), false
}

func TestWhatASchemaAllowsIsValid(t *testing.T) {
	times := 10
	if fixtures.Torture() {
		times = 500
	}
	for _, c := range readSchemas(t) {
		t.Run(c.Name, func(t *testing.T) {
			valid := validator(t, c.Schema)
			_, p := schemaProgram(t, c.Schema)
			random := rand.New(rand.NewPCG(1, 2))
			short, different := 0, map[string]bool{}
			for range times {
				text, ok := draw(p, random, 2000)
				if !ok {
					continue
				}
				short++
				different[text] = true
				doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
				if err == nil {
					err = valid.Validate(doc)
				}
				if err != nil {
					t.Fatalf("%s\nis not valid by %s:\n%v", text, c.Schema, err)
				}
			}
			if short < times/2 {
				t.Errorf("only %d of %d random documents came to an end", short, times)
			}
			t.Logf("%d documents", len(different))
		})
	}
}

func TestSchemasAllowOrdinaryDocuments(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		yes, no      []string
	}{
		{"any JSON", `true`, []string{`{"a": [1, -2.5e-3, {"b": null}], "ü": "\u00e9\n"}`, `[]`, `{}`, `[1,2]`, "{\n  \"a\": true\n}"}, []string{``, `{"a" :1}`, `[1,]`, `01`, `"\ud83d"`, ` 1`, `1 `}},
		{"order, and properties left out", `{"properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"]}`,
			[]string{`{"b":null}`, `{"a":null,"b":null}`, `{"b": null, "c": null}`, "{\n\t\"a\": null,\n\t\"b\": null,\n\t\"c\": null\n}"},
			[]string{`{}`, `{"a":null}`, `{"b":null,"a":null}`, `{"b":null,"d":null}`, `{"b":null,}`, `{,"b":null}`}},
		{"all optional", `{"properties":{"a":{"const":1},"b":{"const":2}}}`, []string{`{}`, `{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`}, []string{`{"b":2,"a":1}`, `{,}`}},
		{"names that are not listed", `{"properties":{"ab":{"const":1},"abc":{"const":1}},"additionalProperties":{"const":2}}`,
			[]string{`{"ab":1,"a":2,"abcd":2,"":2}`, `{"x":2}`, `{"b":2}`, `{"abc":1}`}, []string{`{"ab":2}`, `{"abc":2}`, `{"x":1}`, `{"\u0061b":2}`}},
		{"integers", `{"type":"integer","minimum":-12,"maximum":105}`, []string{"-12", "-9", "-1", "0", "7", "10", "99", "100", "105"}, []string{"-13", "106", "1000", "-0", "00", "1.0"}},
		{"no upper limit", `{"type":"integer","minimum":97}`, []string{"97", "99", "100", "123456789"}, []string{"96", "9", "0", "-97"}},
		{"no lower limit", `{"type":"integer","exclusiveMaximum":-97}`, []string{"-98", "-100"}, []string{"-97", "-9", "0", "98"}},
		{"decimals", `{"type":"number","minimum":0.25,"maximum":1.125}`, []string{"0.25", "0.250", "0.3", "0.9", "1", "1.0", "1.1", "1.12", "1.125", "1.1249"}, []string{"0", "0.2", "0.249", "1.126", "1.2", "2", "0.", "1.13"}},
		{"decimals in one unit", `{"type":"number","exclusiveMinimum":0.125,"exclusiveMaximum":0.13}`, []string{"0.1251", "0.126", "0.12999"}, []string{"0.125", "0.1250", "0.13", "0.124"}},
		{"one decimal", `{"type":"number","minimum":2.5,"maximum":2.5}`, []string{"2.5", "2.50"}, []string{"2", "2.51", "2.4"}},
		{"lengths", `{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"a\nc"`, `"\u00e9é😀"`}, []string{`"a"`, `"abcd"`, `""`}},
		{"long lengths", `{"type":"string","minLength":299,"maxLength":301}`, []string{`"` + strings.Repeat("a", 299) + `"`, `"` + strings.Repeat("é", 301) + `"`}, []string{`"` + strings.Repeat("a", 298) + `"`, `"` + strings.Repeat("a", 302) + `"`}},
		{"many items", `{"type":"array","items":{"const":0},"maxItems":600}`, []string{"[" + strings.Repeat("0,", 599) + "0]", "[]", "[0]"}, []string{"[" + strings.Repeat("0,", 600) + "0]"}},
		{"tuples", `{"prefixItems":[{"const":1},{"const":2}],"minItems":1}`, []string{"[1]", "[1, 2]"}, []string{"[]", "[2]", "[1,2,3]"}},
		{"patterns anywhere", `{"type":"string","pattern":"b.d"}`, []string{`"bcd"`, `"abcde"`, `"\"bed\""`}, []string{`"bd"`, `"b\nd"`}},
		{"patterns of alternatives", `{"type":"string","pattern":"^a$|^(b|c){2}$"}`, []string{`"a"`, `"bc"`}, []string{`"b"`, `"aa"`}},
		{"dates", `{"format":"date"}`, []string{`"2024-02-29"`, `"2023-12-31"`, `"2000-02-29"`}, []string{`"2023-02-29"`, `"1900-02-29"`, `"2023-04-31"`, `"2023-13-01"`}},
		{"enum within type", `{"type":"integer","enum":[1,"1",2.0,2.5,null]}`, []string{"1", "2.0"}, []string{`"1"`, "2.5", "null"}},
		{"enum twice", `{"enum":[1,2,3],"allOf":[{"enum":[3,2.0,4]}]}`, []string{"2", "3"}, []string{"1", "4"}},
		{"recursion through allOf", `{"$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/a"},"x":{"const":1}}},"b":{"properties":{"n":{"$ref":"#/$defs/b"},"y":{"const":2}}}},"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}`,
			[]string{`{}`, `{"n":{"n":{},"x":1,"y":2},"x":1}`}, []string{`{"n":{"y":1}}`}},
		{"unevaluated properties", `{"allOf":[{"properties":{"a":{"const":1}}}],"unevaluatedProperties":false}`, []string{`{}`, `{"a":1}`}, []string{`{"b":1}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p := schemaProgram(t, []byte(c.schema))
			valid := validator(t, []byte(c.schema))
			for _, text := range c.yes {
				if !p.read(symbols(text)) {
					t.Errorf("%s is not allowed", text)
				}
				doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
				if err == nil {
					err = valid.Validate(doc)
				}
				if err != nil {
					t.Errorf("the test is wrong: %v", err)
				}
			}
			for _, text := range c.no {
				if p.read(symbols(text)) {
					t.Errorf("%s is allowed", text)
				}
			}
		})
	}
}

func TestSchemasThatCannotBeEnforcedAreErrorsWithTheirPlace(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{"type":"object"`, "not a JSON document"},
		{`{} {}`, "text follows the document"},
		{`{"a":1,"a":2}`, `holds "a" twice`},
		{"{\"title\":\"\xff\"}", "UTF-8"},
		{strings.Repeat(`{"items":`, 200) + "{}" + strings.Repeat("}", 200), "nested more than"},
		{`3`, "#: a schema is an object or a boolean"},
		{`false`, "no value is valid"},
		{`{"properties":{"a":{"not":{"minimum":3}}}}`, "#/properties/a/not: the keyword not is supported for types only"},
		{`{"items":{"if":true}}`, "#/items/if: the keyword if"},
		{`{"propertyNames":{"pattern":"(a)\\1"}}`, "#/propertyNames/pattern: the pattern cannot be used"},
		{`{"patternProperties":{"(a)\\1":{}}}`, "the escape"},
		{`{"contains":{}}`, "contains"},
		{`{"dependentRequired":{}}`, "dependentRequired"},
		{`{"type":"array","uniqueItems":true}`, "#/uniqueItems: uniqueItems is supported for arrays of at most one item, or"},
		{`{"type":"thing"}`, `#/type: type is "thing"`},
		{`{"type":[]}`, "#/type: type must not be empty"},
		{`{"minLength":"3"}`, "#/minLength: minLength must be an integer"},
		{`{"minItems":-1}`, "must not be negative"},
		{`{"minLength":99999999}`, "#/minLength: minLength is supported up to"},
		{`{"exclusiveMinimum":true}`, "exclusiveMinimum must be a number"},
		{`{"type":"integer","minimum":1e99}`, "#/minimum: minimum is supported up to"},
		{`{"type":"integer","minimum":1e999999999}`, "#/minimum: minimum is supported up to"},
		{`{"type":"number","multipleOf":0}`, "#/multipleOf: multipleOf must be above 0"},
		{`{"type":"integer","multipleOf":100003}`, "#/multipleOf: multipleOf is supported"},
		{`{"$ref":"other.json"}`, "only places in the same document"},
		{`{"$ref":"#/$defs/x"}`, "not in the schema"},
		{`{"$ref":"#"}`, "refers to itself without end"},
		{`{"allOf":[{"$ref":"#/anyOf/0"}],"anyOf":[{"$ref":"#"}]}`, "refers to itself without end"},
		{`{"anyOf":[]}`, "anyOf must not be empty"},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, "#/oneOf: a value may be valid by the alternatives 0 and 1"},
		{`{"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, "#/oneOf"},
		{`{"enum":[["a"]],"minItems":1}`, "#/enum/0: a value of enum or const is not supported with other keywords about an array"},
		{`{"enum":["a"],"minLength":2}`, "no value is valid"},
		{`{"type":"string","pattern":"(a(?=b)|b)*"}`, "#/pattern: the pattern cannot be enforced: it has a lookbehind"},
		{`{"type":"string","pattern":"(a)\\1"}`, "the escape"},
		{`{"type":"string","pattern":"\\bx"}`, "a word boundary"},
		{`{"type":"string","pattern":"\\p{Nonsense}"}`, "the property \\p{Nonsense} is not known"},
		{`{"type":"string","pattern":"a)"}`, "has no opening one"},
		{`{"type":"string","pattern":"[b-a]"}`, "a range in a class is reversed"},
		{`{"type":"string","pattern":"[]"}`, "no value is valid"},
		{`{"type":"string","pattern":"^(a|b)*a(a|b){12}$","maxLength":900}`, "#/maxLength: this length is not supported"},
		{`{"type":"string","format":"regex"}`, "#/format: the format \"regex\""},
		{`{"type":"string","format":"cuid"}`, "#/format: the format \"cuid\""},
		{`{"properties":{"a":{},"b":{}},"maxProperties":1}`, "#/maxProperties"},
		{`{"additionalProperties":{},"minProperties":2}`, "#/minProperties"},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "can never end"},
		{`{"anyOf":[` + strings.Repeat(`{"const":1},`, 1100) + `true]}`, "more than 1024 alternatives"},
		{`{"allOf":[` + strings.Repeat(`{"anyOf":[{"minLength":1},{"maxLength":9}]},`, 12) + `true]}`, "multiply to more than"},
		{`{"enum":[` + strings.Repeat(`"`+strings.Repeat("ab", 400)+`",`, 20) + `"` + strings.Repeat("x", 70000) + `"]}`, "#/enum: the values take"},
		{`{"allOf":[` + strings.Repeat(`{},`, 20000) + `true]}`, "the schema is too large"},
		{`[` + strings.Repeat(`0,`, 140000) + `0]`, "the schema is too large: it holds more than"},
		{`{"required":[` + numbers(50000, `"r%d"`) + `]}`, "more than 2000 properties"},
	} {
		rules, _, err := SchemaRules(context.Background(), "root", []byte(c.schema), true)
		if err == nil {
			_, err = Parse(context.Background(), rules)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s: got error %v, want one with %q", c.schema, err, c.want)
		}
	}
}

// numbers returns n numbered items separated by commas.
func numbers(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestSchemaRulesStandInALargerGrammar(t *testing.T) {
	rules, _, err := SchemaRules(context.Background(), "arguments", []byte(`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"]}`), true)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Parse(context.Background(), "root ::= "+Literal("<call>\n")+" arguments "+Literal("\n</call>")+" <[7]>\n"+rules)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"<call>\n{\"city\": \"Zürich\", \"days\": 14}\n</call>": true,
		"<call>\n{\"city\":\"\\\"\"}\n</call>":                  true,
		"<call>\n{\"city\": \"Bern\", \"days\": 15}\n</call>":   false,
		"<call>\n{\"days\": 1}\n</call>":                        false,
	} {
		if got := g.program.read(append(symbols(text), 256+7)); got != want {
			t.Errorf("%q: accepted %v", text, got)
		}
	}
}
