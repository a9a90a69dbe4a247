package grammar

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sdkSchema is a schema in a shape that a library writes.
type sdkSchema struct {
	Name    string          `json:"name"`
	Schema  json.RawMessage `json:"schema"`
	Ignored []string        `json:"ignored"` // the keywords that are ignored without strict
	Refused string          `json:"refused"` // the error with strict; empty if all of it is enforced
	Draft   int             `json:"draft"`   // of the validator; 0: 2020-12
}

func readSDKSchemas(t testing.TB) (list []sdkSchema) {
	t.Helper()
	data, err := os.ReadFile("testdata/sdk_schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestSchemasOfLibrariesAreEnforced reads schemas as written by zod 3 and 4,
// zod-to-json-schema, TypeBox, pydantic, LangChain and the helpers of SDKs. A third-party
// validator must accept the documents that their rules allow.
func TestSchemasOfLibrariesAreEnforced(t *testing.T) {
	drafts := map[int]*jsonschema.Draft{0: jsonschema.Draft2020, 4: jsonschema.Draft4, 7: jsonschema.Draft7, 2019: jsonschema.Draft2019}
	for _, c := range readSDKSchemas(t) {
		t.Run(c.Name, func(t *testing.T) {
			rules, ignored, err := SchemaRules(context.Background(), "root", c.Schema, false)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ignored, c.Ignored) {
				t.Errorf("got ignored %q, want %q", ignored, c.Ignored)
			}
			_, _, err = SchemaRules(context.Background(), "root", c.Schema, true)
			if (err == nil) != (c.Refused == "") || err != nil && !strings.Contains(err.Error(), c.Refused) {
				t.Errorf("strict: got error %v, want %q", err, c.Refused)
			}
			_, p := mustParse(t, rules)
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(c.Schema)))
			if err != nil {
				t.Fatal(err)
			}
			compiler := newCompiler()
			compiler.DefaultDraft(drafts[c.Draft])
			if err := compiler.AddResource("schema.json", doc); err != nil {
				t.Fatal(err)
			}
			valid, err := compiler.Compile("schema.json")
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, 2))
			ended := 0
			for range 8 {
				text, ok := draw(p, random, 3000)
				if !ok {
					continue
				}
				ended++
				doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if err := valid.Validate(doc); err != nil && len(c.Ignored) == 0 {
					t.Fatalf("%s\nis not valid by %s:\n%v", text, c.Schema, err)
				}
			}
			if ended == 0 {
				t.Error("no document came to an end")
			}
		})
	}
}

func TestCombinedKeywordsAreEnforced(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		yes, no      []string
	}{
		{"two patterns", `{"type":"string","allOf":[{"pattern":"^ab"},{"pattern":"yz$"}]}`, []string{`"abyz"`, `"ab-yz"`}, []string{`"aby"`, `"xabyz"`, `"ab"`}},
		{"a pattern that looks ahead", `{"type":"string","pattern":"^(?=.*\\d)(?!.*00)[a-z0-9]{3,5}$"}`, []string{`"ab1"`, `"10101"`}, []string{`"abc"`, `"a00"`, `"a1"`, `"abcde1"`}},
		{"a look ahead in a group", `{"type":"string","pattern":"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+D)?(T(?=\\d)(\\d+H)?)?)$"}`, []string{`"P1W"`, `"P2D"`, `"PT3H"`, `"P2DT3H"`}, []string{`"P"`, `"PT"`, `"P2DT"`}},
		{"anchors within groups", `{"type":"string","pattern":"^(a|b$|(^c))d?$"}`, []string{`"ad"`, `"b"`, `"cd"`}, []string{`"bd"`, `"xc"`}},
		{"a pattern and a format", `{"type":"string","format":"uuid","pattern":"^[0-9A-F-]{8}.*-4[^-]*-[89AB]"}`, []string{`"0123ABCD-0000-4000-8000-00000000abcd"`}, []string{`"0123abcd-0000-4000-8000-000000000000"`, `"0123ABCD-0000-3000-8000-000000000000"`, `"0123ABCD-4-8"`, `"0123ABCD-0000-4000-8000-00000000abc"`}},
		{"a pattern and a length", `{"type":"string","pattern":"a|bc","maxLength":3}`, []string{`"a"`, `"bca"`, `"xbc"`}, []string{`"b"`, `"abcd"`}},
		{"classes of Unicode", `{"type":"string","pattern":"^\\p{Lu}\\p{Script=Greek}[\\w-.]$"}`, []string{`"Äα-"`, `"AΩ."`}, []string{`"äα-"`, `"Aa-"`}},
		{"values of enum that are not too short", `{"enum":["a","abc",7,null],"minLength":2,"multipleOf":2}`, []string{`"abc"`, "null"}, []string{`"a"`, "7"}},
		{"unique values in any order", `{"type":"array","uniqueItems":true,"items":{"enum":["a","b","c"]},"minItems":1}`, []string{`["a"]`, `["c","a"]`, `["b", "c", "a"]`}, []string{`[]`, `["a","a"]`, `["b","a","b"]`}},
		{"multiples", `{"type":"integer","multipleOf":15}`, []string{"0", "15", "-30", "9000000000000000"}, []string{"1", "5", "10", "25", "-7", "015"}},
		{"multiples between limits", `{"type":"integer","multipleOf":7,"minimum":-20,"exclusiveMaximum":70000}`, []string{"-14", "0", "7", "69993"}, []string{"-21", "70000", "69994", "13"}},
		{"multiples of a fraction", `{"type":"number","multipleOf":0.25,"minimum":0,"maximum":1}`, []string{"0.00", "0.25", "0.75", "1.00"}, []string{"0.3", "1.25", "0.1"}},
		{"cents", `{"type":"number","multipleOf":0.01}`, []string{"0", "1", "0.1", "0.10", "-12.34", "123456.05"}, []string{"0.001", "1.", "00.1", "1e2"}},
		{"multiples of two", `{"type":"integer","multipleOf":4,"allOf":[{"multipleOf":6}],"minimum":5000}`, []string{"5004", "12000"}, []string{"5000", "5006", "12"}},
		{"names of a list", `{"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer","maximum":1,"minimum":1},"required":["b"]}`, []string{`{"b":1}`, `{"b": 1, "a": 1}`}, []string{`{"a":1}`, `{"b":1,"c":1}`, `{"b":1,"b":1}`}},
		{"names that are strings", `{"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"const":1}}`, []string{`{}`, `{"x":1}`}, []string{`{"x":2}`}},
		{"names of a pattern", `{"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":2},"additionalProperties":{"const":1}}`, []string{`{"ab":1}`, `{"a":1, "b":1}`}, []string{`{"A":1}`, `{"abc":1}`}},
		{"patterns of properties", `{"type":"object","properties":{"x1":{"maximum":5,"type":"integer"}},"patternProperties":{"^x":{"minimum":3},"y$":{"const":"y"}},"additionalProperties":false}`,
			[]string{`{"x1":4}`, `{"x1":3,"y":"y"}`, `{"x2":7}`, `{"x":3.5}`}, []string{`{"x1":2}`, `{"x1":6}`, `{"y":3}`, `{"z":1}`, `{"xy":"y"}`}},
		{"what a type is not", `{"not":{"type":["string","object","array","null"]}}`, []string{"true", "1.5"}, []string{`""`, "{}", "null"}},
		{"nothing as an alternative", `{"anyOf":[{"not":{}},{"type":"boolean"}]}`, []string{"true"}, []string{`1`}},
		{"limits that are out by a draft before 6", `{"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}`, []string{"1", "9"}, []string{"0", "10"}},
		{"limits that no number meets", `{"type":"number","minimum":-1.7976931348623157e308,"maximum":1.7976931348623157e308}`, []string{"0", "-12.5", "123456789"}, []string{"1e2"}},
		{"anchors and ids", `{"$defs":{"n":{"$anchor":"node","const":1},"m":{"$id":"other","const":2}},"anyOf":[{"$ref":"#node"},{"$ref":"other"}]}`, []string{"1", "2"}, []string{"3"}},
		{"a choice of many", `{"enum":[` + numbers(3000, `"word %d"`) + `]}`, []string{`"word 0"`, `"word 2999"`}, []string{`"word 3000"`, `"word "`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p := schemaProgram(t, []byte(c.schema))
			for _, text := range c.yes {
				if !p.read(symbols(text)) {
					t.Errorf("%s is not allowed", text)
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

func TestKeywordsThatCannotBeEnforcedAreListedAndIgnored(t *testing.T) {
	for _, c := range []struct {
		schema  string
		ignored []string
		yes, no []string
	}{
		{`{"type":"object","properties":{"a/b":{"type":"integer","if":{"minimum":3},"then":{"maximum":5}}},"required":["a/b"]}`, []string{"if at #/properties/a~1b"}, []string{`{"a/b":9}`}, []string{`{}`}},
		{`{"type":"array","items":{"type":"string"},"uniqueItems":true}`, []string{"uniqueItems at #"}, []string{`["a","a"]`}, []string{`[1]`}},
		{`{"type":"string","pattern":"(a)\\1","maxLength":2}`, []string{"pattern at #"}, []string{`"xy"`}, []string{`"xyz"`}},
		{`{"type":"string","pattern":"^\\bfoo\\b$"}`, []string{"pattern at #"}, []string{`"foo"`}, []string{`"fo"`}},
		{`{"type":"string","format":"regex"}`, []string{"format at #"}, []string{`"("`}, []string{`1`}},
		{`{"type":"string","format":"date","pattern":"^x$"}`, []string{"format at #"}, []string{`"x"`}, []string{`"2024-01-01"`}},
		{`{"type":"integer","multipleOf":100003,"minimum":1}`, []string{"multipleOf at #"}, []string{`1`}, []string{`0`}},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, []string{"oneOf at #"}, []string{`1`, `1.5`}, []string{`""`}},
		{`{"$ref":"https://example.com/other.json"}`, []string{"$ref at #"}, []string{`1`, `{}`}, nil},
		{`{"type":"array","contains":{"const":1},"items":{"enum":[1,2]}}`, []string{"contains at #"}, []string{`[2]`}, []string{`[3]`}},
		{`{"properties":{"a":{"const":1},"b":{"const":1}},"maxProperties":1}`, []string{"maxProperties at #"}, []string{`{"a":1,"b":1}`}, nil},
		{`{"properties":{"a":{"not":{"const":1}},"b":{"not":{"const":1}}}}`, []string{"not at #/properties/a", "not at #/properties/b"}, []string{`{"a":1}`}, nil},
	} {
		rules, ignored, err := SchemaRules(context.Background(), "root", []byte(c.schema), false)
		if err != nil || !slices.Equal(ignored, c.ignored) {
			t.Errorf("%s: got %q, %v, want %q", c.schema, ignored, err, c.ignored)
			continue
		}
		_, p := mustParse(t, rules)
		for _, text := range c.yes {
			if !p.read(symbols(text)) {
				t.Errorf("%s: %s is not allowed", c.schema, text)
			}
		}
		for _, text := range c.no {
			if p.read(symbols(text)) {
				t.Errorf("%s: %s is allowed", c.schema, text)
			}
		}
		if _, _, err := SchemaRules(context.Background(), "root", []byte(c.schema), true); err == nil && !strings.Contains(c.schema, `"pattern":"^x$"`) {
			t.Errorf("%s: strict is not an error", c.schema)
		}
	}
	_, ignored, err := SchemaRules(context.Background(), "root", []byte(`{"properties":{`+numbers(150, `"p%d":{"if":{}}`)+`}}`), false)
	if err != nil || len(ignored) != maxIgnored+1 || ignored[maxIgnored] != "and 50 more" {
		t.Errorf("got %d lines, %q, %v", len(ignored), ignored[len(ignored)-1], err)
	}
}

// TestTheWorkOfASchemaIsLinearInItsSize compiles schemas of a size and of twice the size.
func TestTheWorkOfASchemaIsLinearInItsSize(t *testing.T) {
	for _, c := range []struct {
		name   string
		schema func(n int) string
		n      int
	}{
		{"a long enum", func(n int) string { return `{"enum":[` + numbers(n, `"k%d"`) + `]}` }, 8000},
		{"an enum of objects", func(n int) string { return `{"enum":[` + numbers(n, `{"a":[%d]}`) + `]}` }, 4000},
		{"two enums", func(n int) string {
			return `{"enum":[` + numbers(n, `%d`) + `],"allOf":[{"enum":[` + numbers(n, `%d`) + `]}]}`
		}, 4000},
		{"many properties", func(n int) string { return `{"properties":{` + numbers(n, `"p%d":{"type":"null"}`) + `}}` }, 900},
		{"many required names", func(n int) string { return `{"required":[` + numbers(n, `"p%d"`) + `]}` }, 900},
		{"many alternatives", func(n int) string { return `{"anyOf":[` + numbers(n, `{"const":%d}`) + `]}` }, 500},
		{"deep references", func(n int) string {
			return `{"$ref":"#/$defs/a0","$defs":{` + numbers(n, `"a%[1]d":{"properties":{"n":{"$ref":"#/$defs/a%[1]d"}}}`) + `}}`
		}, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			measure := func(n int) (work, code int) {
				root, err := parseJSON(context.Background(), []byte(c.schema(n)))
				if err != nil {
					t.Fatal(err)
				}
				w := newSchemaWriter(context.Background(), "root", root, true)
				if err := w.document(); err != nil {
					t.Fatal(err)
				}
				_, p := mustParse(t, w.text.String())
				return w.work, len(p.code) + len(p.outs) + len(p.ranges)
			}
			work, code := measure(c.n)
			work2, code2 := measure(2 * c.n)
			if work2 > 5*work/2 || code2 > 5*code/2 {
				t.Errorf("twice the size takes %d steps instead of %d, %d instructions instead of %d", work2, work, code2, code)
			}
			if work > 40*c.n {
				t.Errorf("%d things take %d steps", c.n, work)
			}
		})
	}
}

// TestSchemasThatMultiplyAreRefusedWithinTheirBudget compiles schemas whose parts are combined
// with each other.
func TestSchemasThatMultiplyAreRefusedWithinTheirBudget(t *testing.T) {
	for name, schema := range map[string]string{
		"allOf of many":          `{"allOf":[` + strings.Repeat(`{"minimum":1},`, 30000) + `true]}`,
		"oneOf of many objects":  `{"oneOf":[` + numbers(1000, `{"properties":{"a":{},"b":{},"c":{},"k":{"const":%d}},"required":["a","b","c","k"]}`) + `]}`,
		"patterns that multiply": `{"type":"object","properties":{` + numbers(400, `"p%d":{"pattern":"^(?=.*a.{20})(?=.*b.{17}).*$"}`) + `}}`,
		"names and patterns":     `{"properties":{` + numbers(1500, `"name%d":{}`) + `},"patternProperties":{` + numbers(900, `"^n.*%d$":{}`) + `}}`,
	} {
		root, err := parseJSON(context.Background(), []byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		w := newSchemaWriter(context.Background(), "root", root, false)
		err = w.document()
		if err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: got error %v", name, err)
		}
		if w.work > maxSchemaWork+maxText {
			t.Errorf("%s: it took %d steps", name, w.work)
		}
	}
}

// expiring is a context that is cancelled after a number of calls of Err.
type expiring struct {
	context.Context
	left int
}

func (c *expiring) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestCancellingTheContextStopsTheWorkOnASchema(t *testing.T) {
	for name, schema := range map[string]string{
		"while it is read":           `{"enum":[` + numbers(60000, `"%d"`) + `]}`,
		"while its enums are looked": `{"enum":[` + numbers(20000, `"some words in number %d"`) + `]}`,
		"while its patterns are":     `{"pattern":"^(?=.{1,900}$)(x{1,30}y{1,30}){20}$"}`,
	} {
		whole := &expiring{context.Background(), 1 << 30}
		_, _, _ = SchemaRules(whole, "root", []byte(schema), true)
		asked := 1<<30 - whole.left
		if asked < 4 {
			t.Errorf("%s: the context was asked %d times", name, asked)
		}
		for _, left := range []int{0, asked / 2, asked - 2} {
			ctx := &expiring{context.Background(), left}
			if _, _, err := SchemaRules(ctx, "root", []byte(schema), true); !errors.Is(err, context.Canceled) || ctx.left < -6 {
				t.Errorf("%s, after %d of %d: got error %v, asked %d times more", name, left, asked, err, -ctx.left)
			}
		}
	}
}

func TestAnEnumOfAnyLengthHasOnePosition(t *testing.T) {
	_, p := schemaProgram(t, []byte(`{"enum":[`+numbers(5000, `"word %d"`)+`]}`))
	s := newStepper(p)
	at := s.start()
	for _, b := range []byte(`"word 12`) {
		if at = s.readByte(at, b); at == nil || len(at.positions) > 2 {
			t.Fatalf("behind %c: %+v", b, at)
		}
	}
	if most := 5000 * 5; len(p.code) > most {
		t.Errorf("%d instructions, want no more than %d", len(p.code), most)
	}
}
