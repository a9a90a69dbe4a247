package api

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/record"
)

// lineLimits end what an editor wants as a completion, with the meaning of llama-server's n_indent and t_max_predict_ms. Both
// hold from the first line break of an answer on.
type lineLimits struct {
	indent int           // spaces and tabs: the answer ends at the first character of a line that has fewer before it; 0: lines may begin anywhere
	within time.Duration // from the first token: the answer ends with the first token after it; 0: it may take any time
}

// apply returns events up to the limits of an answer to r. There the answer ends as it does at max_tokens.
func (l lineLimits) apply(ctx context.Context, r infer.Request, generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]) iter.Seq2[infer.Event, error] {
	if l == (lineLimits{}) {
		return generate(ctx, r)
	}
	return func(yield func(infer.Event, error) bool) {
		var line currentLine
		var watch stopwatch
		for e, err := range generate(ctx, r) {
			if err != nil || e.Type == infer.EventDone {
				yield(e, err)
				return
			}
			over, now := false, time.Now()
			watch.note(&generationFields{}, e, now)
			if e.Type == infer.EventToken && !e.Token.Prompt {
				token := *e.Token
				if token.Text, over = line.read(token.Text, l.indent); line.broken && l.within > 0 && now.Sub(watch.first) > l.within {
					over = true
				}
				e.Token = &token
			}
			if !yield(e, nil) {
				return
			}
			if over {
				done := infer.Done{Answer: record.Answer{End: record.End{Reason: infer.FinishLength}, Usage: watch.usage(), Timings: watch.timings()}}
				done.Receipt.Params = r.Params
				yield(infer.Event{Type: infer.EventDone, Done: &done}, nil)
				return
			}
		}
	}
}

// currentLine is where an answer is.
type currentLine struct {
	broken    bool // it has a line break
	indenting bool // nothing but spaces and tabs came since the last one
	indent    int  // of them
}

// read returns text up to the first character of a line that is indented by less than least, and whether there is one.
func (l *currentLine) read(text string, least int) (kept string, over bool) {
	for i := range len(text) {
		switch c := text[i]; {
		case l.indenting && (c == ' ' || c == '\t'):
			l.indent++
			continue
		case l.indenting && l.indent < least:
			return text[:i], true
		case c == '\n':
			*l = currentLine{broken: true, indenting: true}
			continue
		}
		l.indenting = false
	}
	return text, false
}

// LlamaFields are the fields of a LlamaChunk that response_fields names, by these names.
type LlamaFields map[string]any

// onlyFields returns the values of v that paths name, such as timings/prompt_n, under these names, as llama-server's
// response_fields do; without paths all of v. A path without a value is left out.
func onlyFields(v any, paths []string) (any, error) {
	if len(paths) == 0 {
		return v, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	only := LlamaFields{}
	for _, path := range paths {
		value, found := whole, true
		for key := range strings.SplitSeq(path, "/") {
			object, _ := value.(map[string]any)
			if value, found = object[key]; !found {
				break
			}
		}
		if found {
			only[path] = value
		}
	}
	return only, nil
}
