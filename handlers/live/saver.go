package live

import (
	"context"
	"errors"
	"sync"
	"time"

	"m40-llm/store"
)

// saver is the one goroutine that saves the text of running answers, of all chats in
// one transaction, so that a stop of the machine costs at most half a second of text.
type saver struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	failed bool // the last try failed, which is logged once
}

func (v *saver) start(s *Service) {
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	v.done.Go(func() {
		ticker := time.NewTicker(s.opt.SaveEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				v.save(s) // ends that a failing store did not take have one more chance
				return
			case <-ticker.C:
				v.save(s)
				s.unload()
			}
		}
	})
}

func (v *saver) stop() {
	if v.cancel != nil {
		v.cancel()
		v.done.Wait()
	}
}

// save stores what the running answers of all chats have gained since the last time.
func (v *saver) save(s *Service) {
	var batch []store.Progress
	var err error
	for _, c := range s.inMemory() {
		if p := c.unsavedText(); p != nil {
			batch = append(batch, *p)
		}
		if endErr := c.retryEnding(); endErr != nil {
			err = endErr
		}
	}
	if len(batch) > 0 {
		// An answer may end between this loop and the commit. Then the store has
		// its whole text and leaves it alone.
		_, saveErr := s.opt.Store.SaveProgress(context.Background(), batch)
		if saveErr != nil {
			err = saveErr
		}
		// What cannot be stored is not tried again, until there is more of it.
		if _, invalid := errors.AsType[*store.InvalidError](saveErr); saveErr == nil || invalid {
			for _, p := range batch {
				if c := s.find(p.Conversation); c != nil {
					c.saved(p)
				}
			}
		}
	}
	if err != nil && !v.failed {
		s.opt.Log.Error("running answers cannot be saved; this is tried again and again", "error", err)
	}
	v.failed = err != nil
}

// find returns a chat that is in memory, or nil.
func (s *Service) find(id string) *Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chats[id]
}

// unsavedText returns the text of the running answer, if there is more than is saved.
func (c *Chat) unsavedText() *store.Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.temporary || c.answer.run == nil || c.answer.run.turn.length() == c.answer.run.turn.saved {
		return nil
	}
	t := c.answer.run.turn
	return &store.Progress{Owner: c.owner, Conversation: c.id, Message: t.ID, Text: t.text.String(), Reasoning: t.reasoning.String(), Tokens: t.ids[:len(t.ids):len(t.ids)], Rows: t.rows.unsaved(savedRows)}
}

// retryEnding stores the end of an answer that could not be stored before. A command that is
// being carried out does so itself.
func (c *Chat) retryEnding() error {
	release := c.trySlot()
	if release == nil {
		return nil
	}
	defer release()
	return c.storeEnding()
}

// storeEnding stores the end of an answer that could not be stored before, unless another one
// is being written; the caller has the command slot.
func (c *Chat) storeEnding() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer.run != nil {
		return nil
	}
	return c.settleEnding()
}

// saved notes what is stored of a running answer.
func (c *Chat) saved(p store.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.answer.run; r != nil && r.turn.ID == p.Message {
		r.turn.saved = len(p.Text) + len(p.Reasoning)
		r.turn.rows.saved(p.Rows)
	}
}
