// Package grammar constrains answers: it computes the mask of the tokens after which the
// text can still become one that a grammar describes.
//
// A grammar is a text in GBNF, the notation of llama.cpp:
//
//	root   ::= "yes" | "no" | number        # the rule root is the whole answer
//	number ::= "-"? [1-9] [0-9]{0,5}        # ? * + {m} {m,} {m,n} {,n} after an item
//	other  ::= ([^"\\] | "\\" .)* <[151645]> # [^…] any other character, . any at all, <[id]> a token
//
// Names consist of letters, digits, - and _. A literal or class may contain the escapes \n
// \r \t \\ \" \[ \] \xHH \uHHHH and \UHHHHHHHH, which are characters, not bytes. A rule
// ends at the end of its line, except in parentheses and around |. A control token is
// allowed only where the grammar names its id; other tokens can be named too.
//
// [SchemaRules] writes a JSON Schema as GBNF rules, which can be part of a larger grammar:
//
//	rules, ignored, err := grammar.SchemaRules(ctx, "arguments", schema, strict)
//	g, err := grammar.Parse(ctx, "root ::= \"<call>\" arguments \"</call>\"\n" + rules)
//
// A [Matcher] follows the grammar with the tokens of a vocabulary. It works on bytes, so
// that characters may be split over tokens and a token may end anywhere. It follows all
// derivations of an ambiguous grammar at once, like an Earley parser: calls of one rule at
// one position share a frame, so that they do not multiply.
//
// Neither the grammar nor the schema is trusted. Sizes, repetitions and the work for one
// token are limited. At most 128 rules are open at once, and a rule is entered only if it
// can end within that limit. So nesting ends, and every text that Mask allows can be
// completed, as far as the vocabulary can spell the rest. Left recursion is an error.
package grammar

import (
	"context"
	"fmt"
	"strings"
)

// Limits, far above the sizes of grammars in use.
const (
	maxText         = 1 << 20 // bytes of a grammar
	maxRules        = 1 << 14
	maxNesting      = 100 // of groups
	maxRepeat       = 1 << 14
	maxTokenID      = 1<<31 - 1
	maxInstructions = 1 << 17

	maxDepth     = 128     // open rules
	maxPositions = 1 << 13 // of one text in an ambiguous grammar
	maxWork      = 1 << 19 // instructions visited for one token: about 50 ms
	maxCached    = 1 << 24 // bytes of the states, transitions and masks of a Matcher
)

// Grammar is a compiled grammar. It is immutable.
type Grammar struct{ program *program }

// Parse compiles the text of a grammar. It returns an error that names the line and the
// reason, or the error of ctx.
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
