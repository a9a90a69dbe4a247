package engine

// sequence is an answer as the scheduler sees it: its tokens, and the memory that holds K and V
// of the first of them. The logits of the last token give the next one.
type sequence struct {
	modelKey string  // openModel.key of the model it needs
	tokens   []int32 // the prompt, then the answer so far
	prompt   int     // number of tokens of the prompt
	sampled  int     // how many last tokens of the prompt are computed as an answer is: the last one, those that the model wrote before, or all of a short prompt
	pictures []pictureSpan

	promptsApart bool // steps of prompts are computed in another way than those of answers: see answerRows

	client   string // who requested it
	sibling  int    // its number among the answers requested together
	audience audience

	arrival   int64 // when it was added, on the scheduler's clock
	queued    int64 // when it last began to wait
	started   bool  // it has run
	preempted bool  // it gave way to another when its time slice was over
	steps     int   // since it was admitted
	rank      int   // while it waits: how many sequences of its client come before it
	restoring bool  // it waits until blocks of its prompt are read from a file
	paused    bool  // it waits until its results are taken, which a goroutine of its own does
	unshared  bool  // it takes nothing from the cache and leaves nothing there
	whole     bool  // all of its tokens are computed in one step

	table    blockTable
	slot     int32 // of the recurrent state, noSlot if the model has none or the sequence has no memory
	computed int   // leading tokens whose K and V are in table
	cached   int   // leading tokens found in the cache when it was admitted

	again int   // tokens that the next step computes again, though the sequence is in decode: see undo
	spare int32 // slot with the recurrent state before the last draft, noSlot if there is none

	drafts *drafts // of its next tokens; nil: none are drafted

	// Where the prompt is scored, the row of each of its tokens gives the score of the next one,
	// so no row may be skipped before all are scored.
	scoring bool
	scored  int // tokens of the prompt that are scored or need no score
}

func newSequence(model string, prompt []int32, scoring bool) *sequence {
	return &sequence{
		modelKey: model,
		tokens:   prompt,
		prompt:   len(prompt),
		scoring:  scoring,
		slot:     noSlot,
		spare:    noSlot,
		scored:   1, // nothing predicts the first token
	}
}

// missing returns how many tokens the next step could compute. It is 1 in decode, or more where some are
// computed again, and more in prefill.
func (q *sequence) missing() int { return len(q.tokens) - q.computed }

// decodes reports whether the next step gives q a token, and computes no more of it than that takes.
func (q *sequence) decodes() bool { return q.missing() == 1 || q.again > 0 }

// answerRows returns the first position that is computed as part of the answer. Where the model computes prompts in another way
// (loadedModel.promptsApart), the bits of a row depend on this. The request alone decides it, not the steps or the cache: the KV cache has two
// entries for a token, one of each kind.
func (q *sequence) answerRows() int { return q.prompt - q.sampled }

// readsPrompt reports whether the next row of q is one of the prompt, in a model that computes those in another way.
func (q *sequence) readsPrompt() bool { return q.promptsApart && q.computed < q.answerRows() }

// next returns how many tokens the next step could compute: missing, but not more than those rows that are computed in the same way.
func (q *sequence) next() int {
	if q.readsPrompt() {
		return q.answerRows() - q.computed
	}
	return q.missing()
}

// unscored reports whether tokens of the prompt are still to be scored.
func (q *sequence) unscored() bool { return q.scoring && q.scored < q.prompt }

// reusable returns how many leading tokens may come from the cache. The last one is always
// computed, because its logits are needed.
func (q *sequence) reusable() int {
	if q.unshared {
		return 0
	}
	if q.unscored() {
		return q.scored - 1
	}
	return len(q.tokens) - 1
}

// scores reports whether the row of position pos scores the next prompt token.
func (q *sequence) scores(pos int) bool {
	return q.unscored() && pos+1 >= q.scored && pos+1 < q.prompt
}
