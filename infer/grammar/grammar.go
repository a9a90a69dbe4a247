// Package grammar holds an answer to a form: it says which tokens may come next so
// that the text can become one that a grammar describes, and nothing else.
//
// A grammar is a text in GBNF, the notation of llama.cpp:
//
//	root   ::= "yes" | "no" | number        # the rule root is the whole answer
//	number ::= "-"? [1-9] [0-9]{0,5}        # ? * + {m} {m,} {m,n} {,n} behind an item
//	other  ::= ([^"\\] | "\\" .)* <[151645]> # [^…] any other character, . any at all, <[id]> a token
//
// Names are of letters, digits, - and _. A literal or class may hold the escapes \n \r
// \t \\ \" \[ \] \xHH \uHHHH and \UHHHHHHHH, which are characters, not bytes. A rule
// ends at the end of its line, but in parentheses and around |. A token by its id is
// the only way for a control token into the answer; an ordinary one may come so too.
//
// A JSON Schema becomes a grammar by [SchemaRules], which writes GBNF that can stand in
// a larger grammar: what is to be valid JSON between other text is a rule there.
//
//	rules, ignored, err := grammar.SchemaRules(ctx, "arguments", schema, strict)
//	g, err := grammar.Parse(ctx, "root ::= \"<call>\" arguments \"</call>\"\n" + rules)
//
// A [Matcher] then walks the grammar with the tokens of a vocabulary. It works on bytes,
// so runes may be split over tokens, and a token may end in the middle of anything. It
// follows all ways through an ambiguous grammar at once, in the manner of Earley:
// calls of a rule at one place are one, so that they do not multiply.
//
// Neither the grammar nor the schema is trusted. Sizes, repetitions and the work of one
// token are limited. No more than 128 rules are open at once, and none is entered that
// could not be left within that; so an answer does not nest for ever, and a text that
// Mask allows can always be brought to an end, as far as the vocabulary can spell it.
// Left recursion is refused.
package grammar

import (
	"context"
	"fmt"
	"strings"
)

// Limits, far above what grammars in use have.
const (
	maxText         = 1 << 20 // bytes of a grammar
	maxRules        = 1 << 14
	maxNesting      = 100 // of groups
	maxRepeat       = 1 << 14
	maxTokenID      = 1<<31 - 1
	maxInstructions = 1 << 17

	maxDepth     = 128     // rules that are open at once
	maxPositions = 1 << 13 // of a text in an ambiguous grammar
	maxWork      = 1 << 19 // instructions looked at for one token: some 50 ms
	maxCached    = 1 << 24 // bytes of the states, transitions and masks of a Matcher
)

// Grammar is a grammar that is understood. It does not change.
type Grammar struct{ program *program }

// Parse reads the text of a grammar. The error says what is wrong, and where; or it
// is that of ctx.
func Parse(ctx context.Context, text string) (*Grammar, error) {
	s, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := compile(ctx, s)
	if err != nil {
		return nil, err
	}
	if newStepper(p).start() == nil {
		return nil, fmt.Errorf("the grammar is too ambiguous: its answer can begin in more than %d places of it, or in ways that take too long to find", maxPositions)
	}
	return &Grammar{p}, nil
}

// Literal returns text as a literal of GBNF.
func Literal(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		writeChar(&b, r)
	}
	b.WriteByte('"')
	return b.String()
}
