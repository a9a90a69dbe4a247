package api

import (
	"cmp"

	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// partKind is what a part of an answer is.
type partKind int

const (
	noPart partKind = iota
	thoughtPart
	textPart
	callPart
)

// part is what an event adds to one part of an answer, for APIs in which an answer is a list of
// parts: reasoning, text and calls, each of which begins, grows and ends.
type part struct {
	kind   partKind
	text   string          // of a thought or text
	call   reply.CallDelta // of a callPart
	tokens []infer.Token   // of a textPart: those that spell it
}

// partsOf returns the parts that an event adds, in their order.
func partsOf(e infer.Event) (list []part) {
	add := func(reasoning, text string, calls []reply.CallDelta, tokens []infer.Token) {
		if reasoning != "" {
			list = append(list, part{kind: thoughtPart, text: reasoning})
		}
		if text != "" {
			list = append(list, part{kind: textPart, text: text, tokens: tokens})
		}
		for _, call := range calls {
			list = append(list, part{kind: callPart, call: call})
		}
	}
	switch {
	case e.Type == infer.EventToken && !e.Token.Prompt:
		add(e.Token.Reasoning, e.Token.Text, e.Token.Calls, []infer.Token{*e.Token})
	case e.Type == infer.EventDone:
		add(e.Done.Reasoning, e.Done.Text, e.Done.Calls, nil)
	}
	return list
}

// growingPart is the part of a streamed answer that grows.
type growingPart struct {
	kind  partKind
	call  int // index of a callPart
	id    string
	name  string // of a callPart
	text  string // so far; of a callPart its arguments
	score []tokenScore

	takesText bool // a call of a tool that takes text
}

// newGrowingPart returns the part that begins with p, which is not in it yet.
func newGrowingPart(p part) growingPart {
	g := growingPart{kind: p.kind}
	if p.kind == callPart {
		g.call, g.id, g.name = p.call.Index, p.call.ID, p.call.Name
	}
	return g
}

// continues reports whether p belongs to g.
func (g *growingPart) continues(p part) bool {
	return g.kind == p.kind && (p.kind != callPart || g.call == p.call.Index)
}

// add appends p, which is new or continues g.
func (g *growingPart) add(p part) {
	g.kind = p.kind
	if p.kind == callPart {
		g.call, g.id, g.name = p.call.Index, cmp.Or(g.id, p.call.ID), cmp.Or(g.name, p.call.Name)
		g.text += p.call.Arguments
		return
	}
	g.text += p.text
}

// parts returns the parts of a whole answer.
func (a *answer) parts() (list []growingPart) {
	if a.reasoning != "" {
		list = append(list, growingPart{kind: thoughtPart, text: a.reasoning})
	}
	if a.text != "" || len(a.calls) == 0 && a.reasoning == "" {
		list = append(list, growingPart{kind: textPart, text: a.text})
	}
	for i, call := range a.calls {
		list = append(list, growingPart{kind: callPart, call: i, id: call.ID, name: call.Function.Name, text: call.Function.Arguments})
	}
	return list
}
