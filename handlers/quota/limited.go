package quota

import (
	"iter"

	"m40-llm/infer"
)

// Limited returns an answer like events that fails with the error of begin, or with that of token before a token for which it
// returns one. Nothing follows that.
func Limited(events iter.Seq2[infer.Event, error], begin, token func() error) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		if err := begin(); err != nil {
			yield(infer.Event{}, err)
			return
		}
		for e, err := range events {
			if e.Token != nil && !e.Token.Prompt {
				if err := token(); err != nil {
					yield(infer.Event{}, err)
					return
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
