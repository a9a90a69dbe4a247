package engine

import (
	"context"

	"m40-llm/infer/sample"
	"m40-llm/infer/tokenizer"
)

// thoughtEnd is the marker that closes reasoning whose budget is used up, as the tokens that come instead of the model's.
type thoughtEnd struct {
	marker []int32 // nil: reasoning goes on
	at     int     // tokens of the answer's sequence before the marker
	tried  bool    // a marker was written: reasoning that goes on after it is left alone
}

// thoughtOver reports whether the next token is one of the marker that closes the reasoning.
func (a *answer) thoughtOver() bool {
	budget, end := a.request.ReasoningBudget, &a.thoughtEnd
	if budget == nil || a.parser == nil || end.tried {
		return false
	}
	if end.marker == nil {
		text := a.parser.ReasoningEnd()
		if text == "" || a.reasoningTokens < *budget {
			return false
		}
		ids, err := a.model.tokenizer.Encode(context.Background(), text, tokenizer.Options{ParseSpecial: true})
		if err != nil {
			ids = nil // no marker, which is as if it had been written
		}
		end.marker, end.at = ids, len(a.tokens)
	}
	next := len(a.tokens) - end.at
	end.tried = next < 0 || next >= len(end.marker) // a part of it was retracted, or it is complete
	return !end.tried
}

// markerMask allows only the next token of the marker.
func (a *answer) markerMask() sample.Mask {
	id := a.thoughtEnd.marker[len(a.tokens)-a.thoughtEnd.at]
	mask := make(sample.Mask, (a.model.config.Vocab+63)/64)
	mask[id/64] = 1 << (id % 64)
	return mask
}
