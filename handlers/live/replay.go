package live

import (
	"context"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// ReplayState is what happens to a replay.
type ReplayState string

const (
	ReplayRunning ReplayState = "running"
	ReplayEqual   ReplayState = "equal"   // the same tokens, and the same end
	ReplayDiffers ReplayState = "differs" // another token, or another end
	ReplayStopped ReplayState = "stopped" // a person, or the server, ended it
	ReplayFailed  ReplayState = "failed"  // the engine could not write it
)

// Replay is an answer that is written once more from its receipt: the same prompt,
// settings, seed and model. It proves that the answer can be made again, or reports what
// is different now, and adds nothing to the chat. Package inspect compares.
type Replay struct {
	Answer  int64        `json:"answer"`
	State   ReplayState  `json:"state"`
	Equal   int          `json:"equal"` // tokens that are the same, from the first
	Total   int          `json:"total"` // tokens of the answer
	Was     string       `json:"was"`   // what follows them, if it differs: a token, or nothing where the answer ends
	Is      string       `json:"is"`
	Changes []Change     `json:"changes,omitempty"`
	Error   *fault.Error `json:"-"` // while failed
}

// Change is a part of the receipt that is another one now.
type Change struct {
	What string `json:"what"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

// ReplayRun is a replay that runs.
type ReplayRun struct {
	Made    Answer        // as it was made
	Recipe  infer.Request // that it was made with, without the files of pictures: see LoadPictures
	Tokens  []int32       // of the answer
	chat    *Chat
	state   Replay
	context context.Context
	cancel  context.CancelFunc
	done    chan struct{} // closed when it has ended
}

// Replay begins to write an answer of the branch once more, alongside the chat: run does so and returns how
// that ended. Stop ends it; until then it keeps other answers from being written.
func (c *Chat) Replay(ctx context.Context, who Principal, answer int64, run func(*ReplayRun) Replay) error {
	at, done, err := c.commandOn(ctx, who, access.ActionAsk, "replay an answer", "answer", answer, RoleModel)
	if err != nil {
		return err
	}
	defer done()
	t := c.branch[at]
	if t.Answer.Rewritten {
		return fault.Invalid("answer", "a person wrote message %d: it has no receipt to be replayed from", t.ID)
	}
	tokens, err := c.tokens(ctx, t)
	if err != nil {
		return owned.StoreError(err)
	}
	if len(tokens) == 0 {
		return fault.Invalid("answer", "message %d has no tokens that could be compared", t.ID)
	}
	running, cancel := context.WithCancel(activity.With(c.service.ctx, activity.Origin{Person: c.owner, Chat: c.id, Replay: true}))
	r := &ReplayRun{
		Made: *t.Answer, Recipe: c.recipe(at), Tokens: tokens,
		chat: c, state: Replay{Answer: t.ID, State: ReplayRunning, Total: len(tokens)}, context: running, cancel: cancel, done: make(chan struct{}),
	}
	c.replays = replays{running: r}
	c.publishReplay(r.state)
	c.service.wg.Go(func() {
		defer close(r.done)
		defer cancel()
		c.finishReplay(run(r))
	})
	return nil
}

// Context ends when a person, or the server, stops the replay.
func (r *ReplayRun) Context() context.Context { return r.context }

// LoadPictures puts the files of the chat's pictures into a request made of the recipe.
func (r *ReplayRun) LoadPictures(request *infer.Request) error {
	return r.chat.service.loadPictures(r.context, r.chat.owner, r.chat.id, request)
}

// State returns how far the replay is.
func (r *ReplayRun) State() Replay { return r.state }

// Report says how far the replay is. tell: the readers of the chat are told.
func (r *ReplayRun) Report(state Replay, tell bool) {
	r.chat.mu.Lock()
	defer r.chat.mu.Unlock()
	if r.state = state; tell {
		r.chat.publishReplay(state)
	}
}

// finishReplay publishes how a replay ended.
func (c *Chat) finishReplay(ended Replay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replays = replays{last: &ended}
	c.publishReplay(ended)
}

// publishReplay publishes how far a replay is.
func (c *Chat) publishReplay(state Replay) {
	c.publish(Event{Type: EventReplay, ID: state.Answer, Replay: &state})
}

// replays are the replay of a chat that runs, and the last one that ended since the last answer.
type replays struct {
	running *ReplayRun
	last    *Replay
}

// state is that of the replay that runs, else of the last one; nil if there was none.
func (r *replays) state() *Replay {
	if r.running != nil {
		state := r.running.state
		return &state
	}
	return r.last
}

// recipe asks for answer number at of the branch with what its receipt says, after the
// beginning that a person wrote.
func (c *Chat) recipe(at int) infer.Request {
	t := c.branch[at]
	a := t.Answer
	r := c.request(c.branch[:at], t.continued(), a.System)
	r.Model = a.Receipt.Model
	a.Settings.Apply(&r)
	if a.Receipt.HasParams() && a.Receipt.Params.Validate() == nil {
		r.Params = a.Receipt.Params
	}
	r.Params.Seed, r.BannedEnds = a.Settings.Seed, a.Receipt.BannedEnds
	return r
}

// Recipe returns the request that an answer of the branch was made with, and with it the
// beginning of the answer that a person wrote.
func (c *Chat) Recipe(ctx context.Context, who Principal, answer int64) (infer.Request, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return infer.Request{}, err
	}
	r, err := c.lockedRecipe(answer)
	if err == nil {
		err = c.service.loadPictures(ctx, c.owner, c.id, &r)
	}
	return r, err
}

// lockedRecipe is Recipe with hashes in place of pictures.
func (c *Chat) lockedRecipe(answer int64) (infer.Request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.branch.find("answer", answer, RoleModel)
	if err != nil {
		return infer.Request{}, err
	}
	if t := c.branch[at]; t.Answer.Rewritten {
		return infer.Request{}, fault.Invalid("answer", "a person wrote message %d: no request made it", t.ID)
	}
	return c.recipe(at), nil
}

// EndedByModel reports whether an end token or a stop string ended the answer.
func (a *Answer) EndedByModel() bool {
	return a.State == Done && !a.Rewritten && a.Reason == infer.FinishStop
}
