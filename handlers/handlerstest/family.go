package handlerstest

import (
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// FamilyWriter writes an answer as a model of a family does, through the parser of its engine.
type FamilyWriter struct {
	*ScriptedAnswer
	parser   *reply.Parser
	controls []string
}

// Family is how models write, as far as these tests need to know it.
type Family struct {
	Name, Template string
	Controls       []string
	Prompt         string // its end
}

// Writer returns what writes an answer in the manner of f.
func (f Family) Writer(a *ScriptedAnswer) FamilyWriter {
	format := reply.Detect(f.Template, true, func(text string) bool { return slices.Contains(f.Controls, text) })
	return FamilyWriter{a, format.Parser(reply.Options{Prompt: f.Prompt}), f.Controls}
}

// Write writes pieces, each a control token or text.
func (w FamilyWriter) Write(pieces ...string) {
	for _, piece := range pieces {
		read := w.parser.Text
		if slices.Contains(w.controls, piece) {
			read = w.parser.Control
		}
		w.tell(read(piece))
	}
}

func (w FamilyWriter) tell(d reply.Delta) {
	w.Count++
	w.Send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: d.Content, Reasoning: d.Reasoning}})
}

// Finish ends the answer as its end token does.
func (w FamilyWriter) Finish() {
	w.tell(w.parser.End(true))
	w.ScriptedAnswer.Finish()
}

// HarmonyFamily is that of gpt-oss.
var HarmonyFamily = Family{
	Name:     "harmony",
	Template: "<|start|><|channel|><|message|>",
	Controls: []string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"},
	Prompt:   "<|start|>user<|message|>Why?<|end|><|start|>assistant",
}
