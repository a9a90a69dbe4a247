package worker

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

const (
	maxCrashes   = 3
	forgetTime   = 10 * time.Minute // after which crashes and device failures no longer count
	maxSuspects  = 4096
	crashMessage = "the engine's process ended three times while it worked on this input, so it is not tried again for some minutes; change the input"
)

// crashes records the inputs that the worker was computing when it ended. One of them may have
// caused it; an answer that ends well clears its input.
type crashes struct {
	now func() time.Time

	mu       sync.Mutex
	suspects map[fingerprint]suspect
}

type suspect struct {
	count int
	by    *process // the last worker that was blamed on it
	last  time.Time
}

// fingerprint identifies an input with its grammar and schemas, whatever the settings and the
// seed.
type fingerprint [sha256.Size]byte

func fingerprintOf(r infer.Request) fingerprint {
	input, _ := json.Marshal(infer.Request{ // broken JSON is refused later
		Model:        r.Model,
		Messages:     r.Messages,
		Continue:     r.Continue,
		Tools:        r.Tools,
		ToolChoice:   r.ToolChoice,
		TemplateVars: r.TemplateVars,
		Prompt:       r.Prompt,
		Pictures:     r.Pictures,
		Tokens:       r.Tokens,
		Grammar:      r.Grammar,
		JSONSchema:   r.JSONSchema,
		Params:       sample.Params{},
	})
	return sha256.Sum256(input)
}

// fingerprintOfTexts identifies the texts of a request for embeddings.
func fingerprintOfTexts(r infer.EmbedRequest) fingerprint {
	input, _ := json.Marshal(infer.EmbedRequest{Model: r.Model, Inputs: r.Inputs})
	return sha256.Sum256(input)
}

// fingerprintOfDocuments identifies the query and the documents of a request to rank.
func fingerprintOfDocuments(r infer.RankRequest) fingerprint {
	input, _ := json.Marshal(infer.RankRequest{Model: r.Model, Query: r.Query, Documents: r.Documents})
	return sha256.Sum256(input)
}

// inputs counts the requests that a worker has, by input. Those that it lost stay.
type inputs struct {
	mu    sync.Mutex
	count map[fingerprint]int
}

func (in *inputs) add(f fingerprint) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.count == nil {
		in.count = map[fingerprint]int{}
	}
	in.count[f]++
}

func (in *inputs) remove(f fingerprint) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.count[f]--; in.count[f] == 0 {
		delete(in.count, f)
	}
}

// alone reports whether the worker has, or had when it ended, no input but one.
func (in *inputs) alone() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.count) == 1
}

// check returns an error for an input that has ended the worker too often.
func (c *crashes) check(f fingerprint) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.suspects[f]
	switch {
	case !ok:
	case c.now().Sub(s.last) >= forgetTime:
		delete(c.suspects, f)
	case s.count >= maxCrashes:
		return &fault.Error{Code: fault.CodeCrashes, Message: crashMessage}
	}
	return nil
}

// blame records that worker p ended while it was computing an input: once, however many requests
// had that input.
func (c *crashes) blame(f fingerprint, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspects == nil || len(c.suspects) >= maxSuspects {
		c.suspects = map[fingerprint]suspect{} // too many to find the cause
	}
	if s := c.suspects[f]; s.by != p {
		c.suspects[f] = suspect{s.count + 1, p, c.now()}
	}
}

// clear records that an answer to an input has ended well.
func (c *crashes) clear(f fingerprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.suspects, f)
}
