package engine

// sequence is an answer as the scheduler sees it: tokens, and the memory that
// holds the K and V of the first of them. When the last token is computed, its
// logits give the next one.
type sequence struct {
	model  string  // name of the model it needs
	tokens []int32 // the prompt, then the answer so far
	prompt int     // tokens of the prompt

	client  string // who asked for it
	sibling int    // its number among the answers that were asked for together

	arrival int64 // when it was asked for, on the scheduler's clock
	queued  int64 // when it began to wait
	begun   bool  // it has run
	yielded bool  // it gave way when its turn was over
	turn    int   // steps since it was admitted
	rank    int   // of its client while it waits: how many of its client come first

	table    blockTable
	computed int // leading tokens whose K and V are in table
	cached   int // of them, those found in the cache when it was admitted

	// Where the prompt is to be scored, the row of each of its tokens gives the
	// score of the next one, so no row may be skipped before all are scored.
	scoring bool
	scored  int // tokens of the prompt that need no score any more
}

func newSequence(model string, prompt []int32, scoring bool) *sequence {
	return &sequence{
		model:   model,
		tokens:  prompt,
		prompt:  len(prompt),
		scoring: scoring,
		scored:  1, // nothing predicts the first token
	}
}

// missing returns how many tokens the next step could compute. It is 1 in decode
// and more in prefill.
func (q *sequence) missing() int { return len(q.tokens) - q.computed }

// unscored reports whether rows still have to score the prompt.
func (q *sequence) unscored() bool { return q.scoring && q.scored < q.prompt }

// reusable returns how many leading tokens may come from the cache. The last one is
// always computed, because its logits are wanted.
func (q *sequence) reusable() int {
	if q.unscored() {
		return q.scored - 1
	}
	return len(q.tokens) - 1
}

// scores reports whether the row of position pos scores the next prompt token.
func (q *sequence) scores(pos int) bool {
	return q.unscored() && pos+1 >= q.scored && pos+1 < q.prompt
}
