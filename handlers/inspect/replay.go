package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"m40-llm/handlers/activity"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// replay is one that runs.
type replay struct {
	*live.ReplayRun
	state     live.Replay
	request   infer.Request
	cut       bool      // the answer was ended from outside, and what comes after it is no difference
	differs   bool      // is known; the receipt, which may say why, is still to come
	published time.Time // when the last event of it was
}

// replayPause is the least time between two events of a replay that runs.
const replayPause = 100 * time.Millisecond

// Replay begins to write an answer of the branch of a chat once more, alongside the chat. Chat.Stop ends
// it; until then it keeps other answers from being written.
func (s *Service) Replay(ctx context.Context, who live.Principal, c *live.Chat, answer int64) error {
	return c.Replay(ctx, who, answer, func(run *live.ReplayRun) live.Replay {
		r := &replay{ReplayRun: run, state: run.State(), request: again(run), cut: undecided(&run.Made)}
		receipt, err := s.rewrite(r)
		s.finish(r, receipt, err)
		return r.state
	})
}

// again asks for the tokens of an answer once more.
func again(run *live.ReplayRun) infer.Request {
	r := run.Recipe
	if undecided(&run.Made) {
		return r
	}
	r.MaxTokens = len(run.Tokens)
	if run.Made.EndedByModel() && run.Made.StopString == "" {
		r.MaxTokens++ // a model that goes on after its end token shows it with one token more
	}
	return r
}

// undecided reports whether an answer was ended from outside where tokens that were
// still to come decided which ones stay, for they might have become a banned string.
func undecided(a *live.Answer) bool {
	return a.State != live.Done && len(a.Settings.BannedStrings) > 0
}

// rewrite compares token by token what the engine writes, to the first that differs,
// and returns what it says about how it wrote.
func (s *Service) rewrite(r *replay) (receipt *infer.Done, err error) {
	ctx := r.Context()
	if err := r.LoadPictures(&r.request); err != nil {
		return nil, err
	}
	err = s.chats.Contain(func() error {
		seen := 0
		for e, err := range s.engine.Generate(ctx, r.request) {
			switch {
			case err != nil:
				return err
			case e.Token != nil && !e.Token.Prompt:
				if seen == len(r.Tokens) || e.Token.ID != r.Tokens[seen] {
					return s.differ(ctx, r, seen, string(e.Token.Bytes))
				}
				seen++
				s.compared(r, seen)
				if r.cut && seen == len(r.Tokens) {
					return nil
				}
			case e.Done != nil:
				receipt = e.Done
				if seen < len(r.Tokens) {
					return s.differ(ctx, r, seen, "")
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
	err = s.chats.Contain(func() error {
		for e, err := range s.engine.Generate(ctx, ask) {
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

// differ notes that after the first equal tokens the engine wrote is; empty: it ended.
func (s *Service) differ(ctx context.Context, r *replay, equal int, is string) error {
	was := ""
	if equal < len(r.Tokens) {
		text, err := s.engine.Detokenize(ctx, r.request.Model, r.Tokens[equal:equal+1])
		if err != nil {
			return err
		}
		was = text
	}
	r.differs, r.state.Equal = true, equal
	r.state.Was, r.state.Is = strings.ToValidUTF8(was, "\ufffd"), strings.ToValidUTF8(is, "\ufffd")
	r.Report(r.state, false)
	return nil
}

// compared notes how many tokens are equal so far.
func (s *Service) compared(r *replay, equal int) {
	r.state.Equal = equal
	now := s.chats.Now()
	tell := now.Sub(r.published) >= replayPause
	if tell {
		r.published = now
	}
	r.Report(r.state, tell)
}

// finish notes how a replay ended.
func (s *Service) finish(r *replay, receipt *infer.Done, err error) {
	state := &r.state
	if r.differs {
		state.State = live.ReplayDiffers
	}
	switch known := (*fault.Error)(nil); {
	case state.State == live.ReplayDiffers && receipt == nil && !errors.Is(err, context.Canceled):
		// It is known what differs, if not why.
	case errors.Is(err, context.Canceled), errors.Is(err, activity.ErrStopped):
		state.State = live.ReplayStopped
	case errors.As(err, &known):
		state.State, state.Error = live.ReplayFailed, known
	case err != nil:
		s.chats.Log().Error("a replay failed", "error", err)
		state.State, state.Error = live.ReplayFailed, &fault.Error{Code: fault.CodeInternal, Message: "the engine failed; the server's log says why"}
	case receipt == nil:
		state.State, state.Error = live.ReplayFailed, &fault.Error{Code: fault.CodeInternal, Message: "the engine ended the answer without saying why"}
	case state.State == live.ReplayRunning:
		state.State = live.ReplayEqual
	}
	if receipt != nil && (state.State == live.ReplayEqual || state.State == live.ReplayDiffers) {
		state.Changes = changes(r, receipt)
	}
}

// changes lists what of the receipt is another now.
func changes(r *replay, now *infer.Done) (list []live.Change) {
	a := &r.Made
	made := a.Receipt
	add := func(what, was, is string) {
		if was != "" && is != "" && was != is {
			list = append(list, live.Change{What: what, Was: was, Is: is})
		}
	}
	add("model file", shortHash(made.ModelHash), shortHash(now.Receipt.ModelHash))
	add("chat template", shortHash(made.TemplateHash), shortHash(now.Receipt.TemplateHash))
	add("engine", made.Engine, now.Receipt.Engine)
	add("device", made.Device, now.Receipt.Device)
	add("number path", made.Path, now.Receipt.Path)
	add("KV cache", made.CacheType, now.Receipt.CacheType)
	if r.state.State == live.ReplayDiffers && a.Usage.PromptTokens > 0 {
		add("prompt", fmt.Sprintf("%d tokens", a.Usage.PromptTokens), fmt.Sprintf("%d tokens", now.Usage.PromptTokens))
	}
	return list
}

// shortHash is enough of a hash to tell two apart.
func shortHash(hash string) string { return hash[:min(12, len(hash))] }
