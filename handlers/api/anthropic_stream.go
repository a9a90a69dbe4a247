package api

import (
	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
)

// messageStream writes the events of POST /v1/messages. The first of them has the number of tokens of
// the prompt, so it is sent when that is known; until then the stream has comments.
type messageStream struct {
	sseStream
	model   string
	started bool
	prefill infer.Prefill
	blocks  int         // that have ended
	growing growingPart // the block that grows; noPart: none
}

func openMessageStream(c echo.Context, model string) (sink, error) {
	w, err := httpio.OpenSSE(c)
	return &messageStream{sseStream: sseStream{sse: w}, model: model}, err
}

func (s *messageStream) send(name string, f fields) error {
	f["type"] = name
	return s.sse.SendNamed(name, f)
}

func (s *messageStream) event(_ int, e infer.Event) error {
	switch {
	case e.Type == infer.EventPrefill:
		s.prefill = *e.Prefill
	case e.Type == infer.EventToken || e.Type == infer.EventDone:
		if err := s.begin(); err != nil {
			return err
		}
	}
	for _, p := range partsOf(e) {
		if err := s.grow(p); err != nil {
			return err
		}
	}
	if e.Type == infer.EventDone {
		return s.finish(*e.Done)
	}
	return s.progress(e)
}

// begin announces the message, once.
func (s *messageStream) begin() error {
	if s.started {
		return nil
	}
	s.started = true
	m := newMessage(s.model)
	m.Usage = AnthropicUsage{InputTokens: s.prefill.Total - s.prefill.Cached, CacheRead: s.prefill.Cached}
	return s.send("message_start", fields{"message": m})
}

// grow adds p to its block, which it announces if it is new.
func (s *messageStream) grow(p part) error {
	if !s.growing.continues(p) {
		if err := s.endBlock(); err != nil {
			return err
		}
		if err := s.beginBlock(p); err != nil {
			return err
		}
	}
	var delta fields
	switch p.kind {
	case thoughtPart:
		delta = fields{"type": "thinking_delta", "thinking": p.text}
	case callPart:
		delta = fields{"type": "input_json_delta", "partial_json": p.call.Arguments}
	default:
		delta = fields{"type": "text_delta", "text": p.text}
	}
	return s.send("content_block_delta", fields{"index": s.blocks, "delta": delta})
}

// beginBlock announces the block that begins with p.
func (s *messageStream) beginBlock(p part) error {
	s.growing = newGrowingPart(p)
	return s.send("content_block_start", fields{"index": s.blocks, "content_block": blockOf(s.growing)})
}

// endBlock ends the block that grows, if there is one.
func (s *messageStream) endBlock() error {
	if s.growing.kind == noPart {
		return nil
	}
	err := s.send("content_block_stop", fields{"index": s.blocks})
	s.growing = growingPart{}
	s.blocks++
	return err
}

// finish ends the stream.
func (s *messageStream) finish(done infer.Done) error {
	if err := s.endBlock(); err != nil {
		return err
	}
	reason, sequence := stopOf(done)
	if err := s.send("message_delta", fields{"delta": fields{"stop_reason": reason, "stop_sequence": sequence}, "usage": usageOf(done)}); err != nil {
		return err
	}
	return s.send("message_stop", fields{})
}

func (s *messageStream) idle() error {
	if !s.started {
		return s.sseStream.idle()
	}
	return s.send("ping", fields{})
}

func (s *messageStream) fail(err error) error {
	return s.sse.SendNamed("error", failure.Describe(err).Anthropic())
}

func (s *messageStream) end() error { return nil }
