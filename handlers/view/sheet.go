package view

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"strings"

	"m40-llm/handlers/compare"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/web/lang"
)

// Sheet is a contact sheet without its answers.
type Sheet struct {
	Question int64     `json:"question"`
	Columns  []Heading `json:"columns"`
	Rows     []Heading `json:"rows"`
}

// Heading is what the answers of a column or row have in common.
type Heading struct {
	Values []HeadingValue `json:"values"`
}

// HeadingValue is a value of a setting.
type HeadingValue struct {
	Name  string `json:"name"` // of the setting
	Text  string `json:"text"`
	Panel bool   `json:"panel,omitempty"` // the panel of the chat has it too
}

// SheetOf describes a sheet. label returns the name of a setting for people.
func SheetOf(s *compare.Sheet, label func(key string) string) Sheet {
	headings := func(places [][]compare.SheetValue) (list []Heading) {
		for _, place := range places {
			h := Heading{Values: []HeadingValue{}} // without a setting an empty list, not null
			for _, v := range place {
				h.Values = append(h.Values, HeadingValue{Name: label(v.Key), Text: strconv.FormatFloat(v.Value, 'f', -1, 64), Panel: panelHas(s.Panel, v)})
			}
			list = append(list, h)
		}
		return list
	}
	return Sheet{Question: s.Question, Columns: headings(s.Columns), Rows: headings(s.Rows)}
}

func panelHas(panel setting.Settings, v compare.SheetValue) bool {
	for _, n := range sample.Numbers() {
		if n.Name == v.Key {
			return n.Get(&panel.Params) == v.Value
		}
	}
	return false
}

// Cell is what has changed in an answer of a group.
type Cell struct {
	Index   int              `json:"index"`
	State   live.AnswerState `json:"state"`
	Text    string           `json:"text,omitempty"` // what was appended
	Tokens  int              `json:"tokens,omitempty"`
	Mean    float64          `json:"mean,omitempty"`    // geometric mean of the probabilities of its tokens, in the model's own distribution
	Same    int              `json:"same,omitempty"`    // UTF-16 units of the text that the first answer has too
	Differs int              `json:"differs,omitempty"` // number of the first token that differs from the first answer, from 1; 0: none that is known
	Equal   bool             `json:"equal,omitempty"`   // it ended as the first answer did
	Ending  *Ending          `json:"ending,omitempty"`
	Note    string           `json:"note,omitempty"` // what it waits for, or why it failed
	Message int64            `json:"kept,omitempty"`
	HTML    string           `json:"html,omitempty"` // all of the text, rendered, when it has ended and has markup, on a contact sheet alone; with PartMark where it parts from the first answer
}

// PartMark stands in HTML where an answer parts from the first one. It is a character for private use, which no text has
// to have.
const PartMark = "\uE000"

// CellOf describes a cell to a reader who has had the first had bytes of its text. first is the first
// answer of the group.
func CellOf(ctx context.Context, c compare.Cell, had int, first *compare.Cell) Cell {
	a := &c.Answer
	v := Cell{Index: c.Index, State: a.State, Text: c.Text[min(had, len(c.Text)):], Tokens: a.Usage.CompletionTokens, Ending: End(ctx, a), Note: note(ctx, c), Message: c.Message}
	if a.Scored > 0 {
		v.Mean = math.Exp(a.LogProb / float64(a.Scored))
	}
	if c.Index == 0 {
		return v
	}
	v.Same = markdown.UTF16Length(c.Text[:min(c.SameText, len(c.Text))])
	switch {
	case c.Differs:
		v.Differs = c.Same + 1
	case first != nil && a.State == live.Done && first.Answer.State == live.Done:
		v.Equal = true
	}
	return v
}

// CellHTML returns Cell.HTML of a cell.
func CellHTML(ctx context.Context, c compare.Cell) string {
	if c.Answer.State.Running() {
		return ""
	}
	parts := -1
	if c.Differs {
		parts = min(c.SameText, len(c.Text))
	}
	return rendered(ctx, c.Text, parts)
}

// rendered returns text as HTML, with PartMark at the offset parts unless that is negative or in the middle of markup; "" if
// text has no markup, and so is shown as it is.
func rendered(ctx context.Context, text string, parts int) string {
	html := markdown.Text(ctx, text)
	if strings.Count(html, "<") == strings.Count(html, "<p>")+strings.Count(html, "</p>")+strings.Count(html, "<br") {
		return ""
	}
	if parts < 0 || strings.Contains(text, PartMark) {
		return html
	}
	if marked := markdown.Text(ctx, text[:parts]+PartMark+text[parts:]); strings.Replace(marked, PartMark, "", 1) == html {
		return marked
	}
	return html
}

// note returns what a cell waits for, or why it failed.
func note(ctx context.Context, c compare.Cell) string {
	a := &c.Answer
	switch p := a.Progress; {
	case a.Error != nil:
		return failure.For(ctx, a.Error).Text
	case c.Reasoning != "" && c.Text == "" && a.State.Running():
		return lang.T(ctx, "Thinking.")
	case a.State != live.Waiting:
		return ""
	case p == nil:
		return lang.T(ctx, "Waiting for the answers before it.")
	case p.Pictures != nil:
		return Looking(ctx, p.Pictures) + "."
	case p.Queued != nil:
		return lang.T(ctx, "Number %s in the queue%s.", lang.Count(ctx, p.Queued.Position), Wait(ctx, *p.Queued))
	case p.Loading != nil:
		return lang.T(ctx, "Waiting until the model is loaded.")
	case p.Prefill != nil && p.Prefill.Total == 0: // another engine, which does not say how many tokens
		return lang.T(ctx, "Reading the prompt.")
	case p.Prefill != nil:
		return lang.T(ctx, "Reading the prompt: %s of %s tokens.", lang.Count(ctx, p.Prefill.Done), lang.Count(ctx, p.Prefill.Total))
	}
	return ""
}

// Looking says that an answer waits for its pictures.
func Looking(ctx context.Context, p *infer.Pictures) string {
	if p.Total == 1 {
		return lang.T(ctx, "Reading the picture")
	}
	return lang.T(ctx, "Reading picture %d of %d", min(p.Done+1, p.Total), p.Total)
}

// SheetFigures are the figures of a sheet in words.
type SheetFigures struct {
	Prompt string `json:"prompt"` // what reading the prompt has taken
	States string `json:"states"` // "9 done, 1 writing, 2 waiting"
}

// FiguresOf sums up the cells of a sheet.
func FiguresOf(ctx context.Context, cells []compare.Cell) SheetFigures {
	var done, writing, waiting, started, prompt, computed, whole int
	for _, c := range cells {
		switch c.Answer.State {
		case live.Waiting:
			waiting++
		case live.Writing:
			writing++
		default:
			done++
		}
		if u := c.Answer.Usage; u.PromptTokens > 0 {
			started++
			prompt, computed, whole = u.PromptTokens, computed+u.PromptTokens-u.CachedTokens, whole+u.PromptTokens
		}
	}
	var f SheetFigures
	switch {
	case started > 1 && computed == whole:
		f.Prompt = lang.N(ctx, prompt, "prompt of %s token, too short to be shared", "prompt of %s tokens, too short to be shared", lang.Count(ctx, prompt))
	case started == 1:
		f.Prompt = lang.N(ctx, prompt, "prompt of %s token", "prompt of %s tokens", lang.Count(ctx, prompt))
	case started > 1:
		f.Prompt = lang.N(ctx, prompt, "prompt of %s token, read for %s answers: %s computed instead of %s", "prompt of %s tokens, read for %s answers: %s computed instead of %s", lang.Count(ctx, prompt), lang.Count(ctx, started), lang.Count(ctx, computed), lang.Count(ctx, whole))
	}
	count := func(n int, text string) string {
		if n == 0 {
			return ""
		}
		return lang.T(ctx, text, lang.Count(ctx, n))
	}
	f.States = cmp.Or(Joined(", ", count(done, lang.Key("%s done")), count(writing, lang.Key("%s writing")), count(waiting, lang.Key("%s waiting"))), lang.T(ctx, "none"))
	return f
}
