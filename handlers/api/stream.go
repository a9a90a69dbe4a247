package api

import (
	"errors"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// sseStream is what the sinks of both OpenAI streams share.
type sseStream struct {
	sse   httpio.SSE
	field string // of the request, that has the prompt
}

func (s sseStream) idle() error { return s.sse.Comment("ping") }

func (s sseStream) fail(err error) error {
	return s.sse.Send(failure.Describe(promptIn(s.field, err)).Body())
}

// promptIn returns err, which says that the prompt is too long without naming a field, with the name
// of the field that has the prompt. It returns other errors as they are.
func promptIn(field string, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != fault.CodeContext || e.Param != "" {
		return err
	}
	named := *e
	named.Param = field
	return &named
}

// progress sends a comment that says what the answer is waiting for. Clients ignore it; people
// who read the raw stream do not.
func (s sseStream) progress(e infer.Event) error {
	switch e.Type {
	case infer.EventPictures:
		return s.sse.Comment("reading picture %d of %d", min(e.Pictures.Done+1, e.Pictures.Total), e.Pictures.Total)
	case infer.EventQueued:
		if e.Queued.WaitS > 0 {
			return s.sse.Comment("queued %d, about %.0f s", e.Queued.Position, e.Queued.WaitS)
		}
		return s.sse.Comment("queued %d", e.Queued.Position)
	case infer.EventLoading:
		if e.Loading.KernelsTotal > 0 {
			return s.sse.Comment("compiling kernels, %d of %d", e.Loading.Kernels, e.Loading.KernelsTotal)
		}
		if e.Loading.LeftS > 0 {
			return s.sse.Comment("loading %d of %d bytes, about %.0f s", e.Loading.Done, e.Loading.Total, e.Loading.LeftS)
		}
		return s.sse.Comment("loading %d of %d bytes", e.Loading.Done, e.Loading.Total)
	case infer.EventPrefill:
		if e.Prefill.Total == 0 { // another engine, which does not say how many tokens
			return s.sse.Comment("prefill")
		}
		return s.sse.Comment("prefill %d of %d tokens", e.Prefill.Done, e.Prefill.Total)
	}
	return nil
}
