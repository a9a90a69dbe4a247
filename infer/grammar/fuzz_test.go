package grammar

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var fuzzGrammars = []string{
	`root ::= "yes" | [^a-z]{2,5} .* # comment`,
	"root ::= \"(\" root \")\" root | \"\"",
	"root ::= (a | b)+ <[2]>\na ::= [a-c\\x80-\\uffff]?\nb ::= \"é\\n\"{,3}",
	"root ::= a{3} b*\na ::= [ab]* c | \"a\"\nb ::= a a\nc ::= \"c\"?",
}

// FuzzGBNF parses hostile grammars: a grammar that compiles must have a start, from which
// bytes can be read.
func FuzzGBNF(f *testing.F) {
	for _, g := range fuzzGrammars {
		f.Add(g)
	}
	f.Add("root ::= root")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Parse(context.Background(), text)
		if err != nil {
			return
		}
		if len(g.program.code) > maxInstructions || len(g.program.classByte) > 256 {
			t.Fatalf("%d instructions, %d classes", len(g.program.code), len(g.program.classByte))
		}
		s := newStepper(g.program)
		at := s.start()
		if at == nil {
			t.Fatal("a grammar that compiles has no start state")
		}
		for range 20 {
			var next *state
			for _, b := range g.program.classByte {
				if after := s.readByte(at, b); after != nil {
					next = after
				}
				if s.work > maxWork {
					return
				}
			}
			if next == nil {
				break
			}
			at = next
		}
	})
}

// FuzzMask compares masks with trying each token, and texts with the reference.
func FuzzMask(f *testing.F) {
	for _, g := range fuzzGrammars {
		f.Add(g, []byte{3, 4, 5, 2, 9})
	}
	v := toyVocabulary()
	f.Fuzz(func(t *testing.T, text string, choices []byte) {
		if len(text) > 200 || strings.ContainsAny(text, "0123456789{") && len(text) > 100 {
			return // the reference takes too long
		}
		s, err := parse(text)
		if err != nil {
			return
		}
		g, err := Parse(context.Background(), text)
		if err != nil || len(g.program.code) > 300 {
			return
		}
		m, err := NewMatcher(g, v)
		if err != nil {
			return
		}
		at := m.Start()
		var tokens []int32
		for _, choice := range choices[:min(len(choices), 6)] {
			mask, err := m.Mask(at)
			if err != nil {
				return
			}
			allowed := allowedBy(t, m, at, mask, text)
			if len(allowed) == 0 {
				break
			}
			id := allowed[int(choice)%len(allowed)]
			if at, err = m.Next(at, id); err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, id)
		}
		if at.Accepts() != s.has(symbolsOf(tokens)) {
			t.Fatalf("%v: accepted %v in\n%s", tokens, at.Accepts(), text)
		}
	})
}

// FuzzSchema compiles hostile schemas. Their rules must be a grammar, and a third-party
// validator must accept the documents that it allows.
func FuzzSchema(f *testing.F) {
	for _, c := range readSchemas(f) {
		f.Add([]byte(c.Schema), uint64(1))
	}
	for _, c := range readSDKSchemas(f) {
		f.Add([]byte(c.Schema), uint64(1))
	}
	f.Add([]byte(`{"allOf":[{"properties":{"a":{"type":"integer"}}},{"required":["a"],"additionalProperties":false}]}`), uint64(2))
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		lenient, _, lenientErr := SchemaRules(context.Background(), "root", schema, false)
		rules, ignored, err := SchemaRules(context.Background(), "root", schema, true)
		if err == nil && len(ignored) == 0 && (lenientErr != nil || lenient != rules) {
			t.Fatalf("a schema that is enforced in full has another grammar without strict: %v", lenientErr)
		}
		if err == nil && len(ignored) > 0 {
			return // a format next to a pattern
		}
		if err != nil {
			if rules = lenient; lenientErr != nil {
				return
			}
		}
		g, parseErr := Parse(context.Background(), rules)
		if parseErr != nil {
			for _, known := range []string{"can never end", "too large", "nested", "the limit is", "more than"} {
				if strings.Contains(parseErr.Error(), known) {
					return
				}
			}
			t.Fatalf("%v in\n%s", parseErr, rules)
		}
		if err != nil || len(g.program.code) > 5000 {
			return
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
		if err != nil {
			t.Fatalf("a schema is no JSON: %v", err)
		}
		c := newCompiler()
		if c.AddResource("schema.json", doc) != nil {
			return
		}
		valid, err := c.Compile("schema.json")
		if err != nil {
			return // the validator is stricter about what does not matter here
		}
		random := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			text, ok := draw(g.program, random, 300)
			if !ok {
				continue
			}
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if err == nil {
				err = valid.Validate(doc)
			}
			if err != nil {
				t.Fatalf("%s\nis not valid by %s:\n%v\n%s", text, schema, err, rules)
			}
		}
	})
}
