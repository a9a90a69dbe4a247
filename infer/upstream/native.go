package upstream

import (
	"cmp"
	"context"
	"math"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/client"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// generateNative has another m40-llm write an answer. Its events are passed on if they are what an engine
// emits.
func (s *server) generateNative(ctx context.Context, m *model, r infer.Request, take func(infer.Event) bool) error {
	var wrong *failure
	size, calls, left := 0, 0, budget(&r, s.describe(m.id).Upstream.ContextLength)
	err := s.native.Generate(ctx, r, func(e infer.Event) bool {
		size += textSize(&e)
		left -= cost(&e)
		switch problem := cmp.Or(checkEvent(&e), unasked(&e, &r), checkCalls(&e, &calls)); {
		case problem != "":
			wrong = s.breach("sent an event that no engine emits: %s", problem)
			return false
		case size > maxAnswer:
			wrong = s.breach("sent an answer with a text of more than %d bytes", maxAnswer)
			return false
		case left < 0:
			wrong = s.breach("sent more than an answer to this request can have")
			return false
		}
		if e.Loading != nil {
			e.Loading.Model = m.name
		}
		if e.Done != nil {
			e.Done.Receipt.Model = m.name
			e.Done.Receipt.Device = s.short(e.Done.Receipt.Device) + " at " + s.address
		}
		return take(e)
	})
	if wrong != nil {
		return wrong
	}
	return s.failure(err)
}

// textSize returns the bytes of an event that become part of the answer's text and calls. The client bounds all bytes
// of an answer.
func textSize(e *infer.Event) (n int) {
	add := func(text, reasoning string, calls []reply.CallDelta) {
		n += len(text) + len(reasoning)
		for _, c := range calls {
			n += len(c.ID) + len(c.Name) + len(c.Arguments)
		}
	}
	if t := e.Token; t != nil {
		add(t.Text, t.Reasoning, t.Calls)
	}
	if d := e.Done; d != nil {
		add(d.Text, d.Reasoning, d.Calls)
	}
	return n
}

// cost returns the bytes that an event takes here, without its text.
func cost(e *infer.Event) int {
	if e.Token == nil {
		return perToken
	}
	return perToken + perTop*len(e.Token.Top) + len(e.Token.Row) + len(e.Token.Changed)
}

// unasked returns what of an event was not asked for; empty if all was.
func unasked(e *infer.Event, r *infer.Request) string {
	t := e.Token
	switch {
	case t == nil:
		return ""
	case len(t.Top) > r.Alternatives:
		return "more alternatives than were asked for"
	case !r.Rows && len(t.Row)+len(t.Changed) > 0:
		return "candidates that were not asked for"
	case len(r.Follow) == 0 && len(t.Followed) > 0:
		return "followed tokens that were not asked for"
	case !r.PromptLogProb && t.Prompt:
		return "a token of the prompt, which was not asked for"
	}
	return ""
}

// least is the smallest log probability that an engine reports, but for rounding: see sample.Choice.
const least = -10_000

// isLogProb reports whether x is a log probability. NaN is none.
func isLogProb(x float64) bool { return x >= least && x <= 1e-6 }

// checkEvent returns what is wrong with an event; empty if nothing is.
func checkEvent(e *infer.Event) string {
	set := map[infer.EventType]bool{
		infer.EventSchema: e.Schema != nil, infer.EventPrompt: e.Prompt != nil, infer.EventPictures: e.Pictures != nil, infer.EventQueued: e.Queued != nil, infer.EventLoading: e.Loading != nil,
		infer.EventPrefill: e.Prefill != nil, infer.EventToken: e.Token != nil, infer.EventDone: e.Done != nil,
	}
	for kind, has := range set {
		if has != (kind == e.Type) {
			return "its type is not that of its content"
		}
	}
	positive := func(numbers ...int) bool {
		for _, n := range numbers {
			if n < 0 || n > math.MaxInt32 {
				return false
			}
		}
		return true
	}
	switch {
	case !set[e.Type]:
		return "its type is unknown"
	case e.Prompt != nil && !record.ValidNotes(e.Prompt.Notes) || e.Done != nil && !record.ValidNotes(e.Done.Notes):
		return "the notes on the prompt"
	case e.Pictures != nil && (!positive(e.Pictures.Done, e.Pictures.Total) || e.Pictures.Done > e.Pictures.Total):
		return "the progress of pictures"
	case e.Queued != nil && !(positive(e.Queued.Position) && e.Queued.WaitS >= 0):
		return "a place in the queue"
	case e.Loading != nil && (e.Loading.Done < 0 || e.Loading.Total < e.Loading.Done || !positive(e.Loading.Kernels, e.Loading.KernelsTotal)):
		return "the progress of loading"
	case e.Prefill != nil && (!positive(e.Prefill.Done, e.Prefill.Total, e.Prefill.Cached) || e.Prefill.Done > e.Prefill.Total):
		return "the progress of the prompt"
	case e.Token != nil && (e.Token.ID < 0 || !isLogProb(e.Token.LogProb) || e.Token.Rank < 0 || len(e.Token.Top) != len(e.Token.Tops)):
		return "a token"
	case e.Token != nil && slices.ContainsFunc(e.Token.Top, func(c sample.Candidate) bool { return !isLogProb(c.LogProb) }):
		return "an alternative of a token"
	case e.Token != nil && (len(e.Token.Bytes) > maxTokenBytes || slices.ContainsFunc(e.Token.Tops, func(b []byte) bool { return len(b) > maxTokenBytes })):
		return "the bytes of a token"
	case e.Token != nil && e.Token.Compared != nil:
		return "a comparison of models"
	case e.Token != nil && max(len(e.Token.Row), len(e.Token.Changed)) > maxRow:
		return "the candidates of a token"
	case e.Done != nil && !checkDone(e.Done):
		return "the record of the answer"
	}
	return ""
}

// checkCalls returns what is wrong with the calls of an event; empty if nothing is. calls is how many the answer has had,
// and counts those that begin: they come in their order.
func checkCalls(e *infer.Event, calls *int) string {
	var parts []reply.CallDelta
	switch {
	case e.Token != nil:
		parts = e.Token.Calls
	case e.Done != nil:
		parts = e.Done.Calls
	}
	for _, c := range parts {
		if c.Index < 0 || c.Index > *calls || c.Index >= maxCalls || max(len(c.ID), len(c.Name)) > maxName {
			return "a call"
		}
		*calls = max(*calls, c.Index+1)
	}
	return ""
}

// checkDone reports whether the record of an answer is one.
func checkDone(d *infer.Done) bool {
	u := d.Usage
	switch d.Reason {
	case infer.FinishStop, infer.FinishCalls, infer.FinishLength, infer.FinishBanned, infer.FinishRepetition:
	default:
		return false
	}
	for _, n := range []int{u.PromptTokens, u.CachedTokens, u.CompletionTokens, u.ReasoningTokens} {
		if n < 0 || n > math.MaxInt32 {
			return false
		}
	}
	for _, text := range []string{d.StopString, d.Receipt.ModelHash, d.Receipt.TemplateHash, d.Receipt.Path, d.Receipt.CacheType, d.Receipt.Engine} {
		if len(text) > maxName {
			return false
		}
	}
	t := d.Timings
	return min(t.Queue, t.Load, t.Prefill, t.Decode, t.First) >= 0 && d.EndProb >= 0 && d.EndProb <= 1 && d.Receipt.Params.Validate() == nil &&
		(d.Pace == nil || d.Pace.Valid()) && d.Reads.Valid() && d.Lookup.Valid()
}

// nativeModels adds to models what the status of another m40-llm says about the one that is loaded, and reports
// whether that is being loaded: then more is known soon.
func (s *server) nativeModels(ctx context.Context, models []offered) (loading bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Patience, client.ErrSilent)
	defer cancel()
	status, err := s.native.Status(ctx)
	if err != nil {
		return false, err
	}
	for i := range models {
		if up := models[i].info.Upstream; models[i].id == status.Model.Name && status.ContextLength > 0 && status.ContextLength <= math.MaxInt32 {
			up.ContextLength = status.ContextLength
			up.TemplateVars = reasoningVars(func(name string) bool { return slices.Contains(status.TemplateVars, name) })
			models[i].info.Demo = status.Model.Demo
		}
	}
	return status.State == infer.StateLoading || status.State == infer.StateRestarting, nil
}
