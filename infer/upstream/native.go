package upstream

import (
	"context"
	"math"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/client"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
)

// generateNative has another m40-llm write an answer. Its events are passed on if they are what an engine
// emits.
func (s *server) generateNative(ctx context.Context, m *model, r infer.Request, take func(infer.Event) bool) error {
	var wrong *failure
	size := 0
	err := s.native.Generate(ctx, r, func(e infer.Event) bool {
		size += textSize(&e)
		switch problem := checkEvent(&e); {
		case problem != "":
			wrong = s.breach("sent an event that no engine emits: %s", problem)
			return false
		case size > maxAnswer:
			wrong = s.breach("sent an answer with a text of more than %d bytes", maxAnswer)
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

// checkEvent returns what is wrong with an event; empty if nothing is.
func checkEvent(e *infer.Event) string {
	set := map[infer.EventType]bool{
		infer.EventSchema: e.Schema != nil, infer.EventPrompt: e.Prompt != nil, infer.EventQueued: e.Queued != nil, infer.EventLoading: e.Loading != nil,
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
	case e.Queued != nil && !(positive(e.Queued.Position) && e.Queued.WaitS >= 0):
		return "a place in the queue"
	case e.Loading != nil && (e.Loading.Done < 0 || e.Loading.Total < e.Loading.Done || !positive(e.Loading.Kernels, e.Loading.KernelsTotal)):
		return "the progress of loading"
	case e.Prefill != nil && (!positive(e.Prefill.Done, e.Prefill.Total, e.Prefill.Cached) || e.Prefill.Done > e.Prefill.Total):
		return "the progress of the prompt"
	case e.Token != nil && (e.Token.ID < 0 || e.Token.LogProb > 1e-6 || e.Token.Rank < 0 || len(e.Token.Top) != len(e.Token.Tops)):
		return "a token"
	case e.Token != nil && max(len(e.Token.Row), len(e.Token.Changed)) > maxRow:
		return "the candidates of a token"
	case e.Token != nil && !checkCalls(e.Token.Calls) || e.Done != nil && !checkCalls(e.Done.Calls):
		return "a call"
	case e.Done != nil && !checkDone(e.Done):
		return "the record of the answer"
	}
	return ""
}

// checkCalls reports whether the ids and names of calls are as short as such are.
func checkCalls(calls []reply.CallDelta) bool {
	return !slices.ContainsFunc(calls, func(c reply.CallDelta) bool { return max(len(c.ID), len(c.Name)) > maxName })
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
	return min(t.Queue, t.Load, t.Prefill, t.Decode, t.First) >= 0 && d.Receipt.Params.Validate() == nil &&
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
