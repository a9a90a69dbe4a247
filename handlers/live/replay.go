package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/infer"
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
// is different now, and adds nothing to the chat.
type Replay struct {
	Answer  int64        `json:"answer"`
	State   ReplayState  `json:"state"`
	Equal   int          `json:"equal"` // tokens that are the same, from the first
	Total   int          `json:"total"` // tokens of the answer
	Was     string       `json:"was"`   // what follows them, if it differs: a token, or nothing where the answer ends
	Is      string       `json:"is"`
	Changes []Change     `json:"changes,omitempty"`
	Error   *infer.Error `json:"-"` // while failed
}

// Change is a part of the receipt that is another one now.
type Change struct {
	What string `json:"what"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

// replay is one that runs.
type replay struct {
	Replay
	turn      *turn
	request   infer.Request
	tokens    []int32 // of the answer
	cut       bool    // the answer was ended from outside, and what comes behind it is no difference
	differs   bool    // is known; the receipt, which may say why, is still to come
	cancel    context.CancelFunc
	done      chan struct{} // closed when it has ended
	published time.Time     // when the last event of it was
}

// replayPause is the least time between two events of a replay that runs.
const replayPause = 100 * time.Millisecond

// Replay begins to write an answer of the branch once more, beside the chat. Stop ends
// it; until then it keeps other answers from being written.
func (c *Chat) Replay(ctx context.Context, who Principal, answer int64) error {
	done, err := c.command(ctx, who, access.ActionAsk, "replay an answer")
	if err != nil {
		return err
	}
	defer done()
	at, err := c.branch.find("answer", answer, RoleModel)
	if err != nil {
		return err
	}
	t := c.branch[at]
	if t.Answer.Rewritten {
		return invalid("answer", "a person wrote message %d: it has no receipt to be replayed from", t.ID)
	}
	tokens, err := c.tokens(ctx, t)
	if err != nil {
		return StoreError(err)
	}
	if len(tokens) == 0 {
		return invalid("answer", "message %d has no tokens that could be compared", t.ID)
	}
	running, cancel := context.WithCancel(activity.With(c.service.ctx, activity.Origin{Person: c.owner, Chat: c.id, Replay: true}))
	r := &replay{
		Replay:  Replay{Answer: t.ID, State: ReplayRunning, Total: len(tokens)},
		turn:    t,
		request: c.again(at, len(tokens)),
		cut:     undecided(t.Answer),
		tokens:  tokens,
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	c.replays = replays{running: r}
	c.publishReplay(r)
	c.service.wg.Go(func() {
		defer close(r.done)
		defer cancel()
		receipt, err := c.rewrite(running, r)
		c.finishReplay(r, receipt, err)
	})
	return nil
}

// again asks for the tokens of answer number at of the branch once more.
func (c *Chat) again(at, tokens int) infer.Request {
	r := c.recipe(at)
	if undecided(c.branch[at].Answer) {
		return r
	}
	r.MaxTokens = tokens
	if endedItself(c.branch[at].Answer) {
		r.MaxTokens++ // a model that goes on there shows it with one token more
	}
	return r
}

// undecided reports whether an answer was ended from outside where tokens that were
// still to come decided which ones stay, for they might have become a banned string.
func undecided(a *Answer) bool { return a.State != Done && len(a.Settings.BannedStrings) > 0 }

// recipe asks for answer number at of the branch with what its receipt says, behind the
// beginning that a person wrote.
func (c *Chat) recipe(at int) infer.Request {
	t := c.branch[at]
	a := t.Answer
	r := c.request(c.branch[:at], t.continued(), a.System)
	r.Model = a.Receipt.Model
	a.Settings.ask(&r)
	if a.Receipt.HasParams() && a.Receipt.Params.Validate() == nil {
		r.Params = a.Receipt.Params
	}
	r.Params.Seed, r.BannedEnds = a.Settings.Seed, a.Receipt.BannedEnds
	return r
}

// Recipe returns the request that an answer of the branch was made with, and with it the
// beginning of the answer that a person wrote.
func (c *Chat) Recipe(_ context.Context, who Principal, answer int64) (infer.Request, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return infer.Request{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.branch.find("answer", answer, RoleModel)
	if err != nil {
		return infer.Request{}, err
	}
	if t := c.branch[at]; t.Answer.Rewritten {
		return infer.Request{}, invalid("answer", "a person wrote message %d: no request made it", t.ID)
	}
	return c.recipe(at), nil
}

// endedItself reports whether an end token ended an answer.
func endedItself(a *Answer) bool { return endedByModel(a) && a.StopString == "" }

// endedByModel reports whether an end token or a stop string ended an answer.
func endedByModel(a *Answer) bool {
	return a.State == Done && !a.Rewritten && a.Reason == infer.FinishStop
}

// rewrite compares token by token what the engine writes, to the first that differs,
// and returns what it says about how it wrote.
func (c *Chat) rewrite(ctx context.Context, r *replay) (receipt *infer.Done, err error) {
	err = c.service.contain(func() error {
		seen := 0
		for e, err := range c.service.engine.Generate(ctx, r.request) {
			switch {
			case err != nil:
				return err
			case e.Token != nil && !e.Token.Prompt:
				if seen == len(r.tokens) || e.Token.ID != r.tokens[seen] {
					return c.differ(ctx, r, seen, string(e.Token.Bytes))
				}
				seen++
				c.compared(r, seen)
				if r.cut && seen == len(r.tokens) {
					return nil
				}
			case e.Done != nil:
				receipt = e.Done
				if seen < len(r.tokens) {
					return c.differ(ctx, r, seen, "")
				}
			}
		}
		return nil
	})
	if err != nil || receipt != nil {
		return receipt, err
	}
	// The comparison ended early: an answer of no tokens has the receipt too.
	ask := r.request
	ask.MaxTokens = 0
	err = c.service.contain(func() error {
		for e, err := range c.service.engine.Generate(ctx, ask) {
			if err != nil {
				return err
			}
			if e.Done != nil {
				receipt = e.Done
			}
		}
		return nil
	})
	return receipt, err
}

// differ notes that behind the first equal tokens the engine wrote is; empty: it ended.
func (c *Chat) differ(ctx context.Context, r *replay, equal int, is string) error {
	was := ""
	if equal < len(r.tokens) {
		text, err := c.service.engine.Detokenize(ctx, r.request.Model, r.tokens[equal:equal+1])
		if err != nil {
			return err
		}
		was = text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.differs, r.Equal = true, equal
	r.Was, r.Is = strings.ToValidUTF8(was, "\ufffd"), strings.ToValidUTF8(is, "\ufffd")
	return nil
}

// compared notes how many tokens are equal so far.
func (c *Chat) compared(r *replay, equal int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Equal = equal
	if now := c.service.opt.Now(); now.Sub(r.published) >= replayPause {
		r.published = now
		c.publishReplay(r)
	}
}

// finishReplay publishes how a replay ended.
func (c *Chat) finishReplay(r *replay, receipt *infer.Done, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.differs {
		r.State = ReplayDiffers
	}
	switch known := (*infer.Error)(nil); {
	case r.State == ReplayDiffers && receipt == nil && !errors.Is(err, context.Canceled):
		// It is known what differs, if not why.
	case errors.Is(err, context.Canceled), errors.Is(err, activity.ErrStopped):
		r.State = ReplayStopped
	case errors.As(err, &known):
		r.State, r.Error = ReplayFailed, known
	case err != nil:
		c.service.opt.Log.Error("a replay failed", "error", err)
		r.State, r.Error = ReplayFailed, &infer.Error{Code: infer.CodeInternal, Message: "the engine failed; the server's log says why"}
	case receipt == nil:
		r.State, r.Error = ReplayFailed, &infer.Error{Code: infer.CodeInternal, Message: "the engine ended the answer without saying why"}
	case r.State == ReplayRunning:
		r.State = ReplayEqual
	}
	if receipt != nil && (r.State == ReplayEqual || r.State == ReplayDiffers) {
		r.Changes = changes(r, receipt)
	}
	c.replays = replays{last: &r.Replay}
	c.publishReplay(r)
}

// changes lists what of the receipt is another now.
func changes(r *replay, now *infer.Done) (list []Change) {
	a := r.turn.Answer
	made := a.Receipt
	add := func(what, was, is string) {
		if was != "" && is != "" && was != is {
			list = append(list, Change{what, was, is})
		}
	}
	add("model file", shortHash(made.ModelHash), shortHash(now.Receipt.ModelHash))
	add("chat template", shortHash(made.TemplateHash), shortHash(now.Receipt.TemplateHash))
	add("engine", made.Engine, now.Receipt.Engine)
	add("device", made.Device, now.Receipt.Device)
	add("number path", made.Path, now.Receipt.Path)
	add("KV cache", made.CacheType, now.Receipt.CacheType)
	if r.State == ReplayDiffers && a.Usage.PromptTokens > 0 {
		add("prompt", fmt.Sprintf("%d tokens", a.Usage.PromptTokens), fmt.Sprintf("%d tokens", now.Usage.PromptTokens))
	}
	return list
}

// shortHash is enough of a hash to tell two apart.
func shortHash(hash string) string { return hash[:min(12, len(hash))] }

// publishReplay publishes how far a replay is.
func (c *Chat) publishReplay(r *replay) {
	state := r.Replay
	c.publish(Event{Type: EventReplay, ID: r.Answer, Replay: &state})
}

// replays are the replay of a chat that runs, and the last one that ended since the last answer.
type replays struct {
	running *replay
	last    *Replay
}

// state is that of the replay that runs, else of the last one; nil if there was none.
func (r *replays) state() *Replay {
	if r.running != nil {
		state := r.running.Replay
		return &state
	}
	return r.last
}
