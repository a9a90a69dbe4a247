package api

import (
	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
)

// responseStream writes the events of POST /v1/responses.
type responseStream struct {
	sseStream
	head responsesHead
	sent int // events

	done    []ResponseOutput // items that have ended
	id      string           // of the item that grows
	growing growingPart      // it; noPart: none
}

// fields are those of an event apart from its type and number.
type fields map[string]any

func openResponseStream(c echo.Context, head responsesHead) (sink, error) {
	w, err := httpio.OpenSSE(c)
	if err != nil {
		return nil, err
	}
	s := &responseStream{sseStream: sseStream{w, "input"}, head: head}
	for _, name := range []string{"response.created", "response.in_progress"} {
		if err := s.send(name, fields{"response": head.response("in_progress")}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *responseStream) send(name string, f fields) error {
	f["type"], f["sequence_number"] = name, s.sent
	s.sent++
	return s.sse.SendNamed(name, f)
}

// sendOf sends an event about the item that grows.
func (s *responseStream) sendOf(name string, f fields) error {
	f["item_id"], f["output_index"] = s.id, len(s.done)
	if s.growing.kind != callPart {
		f["content_index"] = 0
	}
	return s.send(name, f)
}

func (s *responseStream) event(_ int, e infer.Event) error {
	for _, p := range partsOf(e) {
		if !s.growing.continues(p) {
			if err := s.endItem("completed"); err != nil {
				return err
			}
			if err := s.beginItem(p); err != nil {
				return err
			}
		}
		if err := s.grow(p); err != nil {
			return err
		}
	}
	if e.Type == infer.EventDone {
		return s.finish(*e.Done)
	}
	return s.progress(e)
}

// beginItem announces the item that begins with p.
func (s *responseStream) beginItem(p part) error {
	s.growing = newGrowingPart(p)
	s.growing.takesText = s.head.body.names.takesText(s.growing.name)
	s.id = newItemID(s.growing)
	item := outputOf(s.id, s.growing, "in_progress")
	if p.kind != callPart {
		item.Content = &[]ResponseContentPart{}
	}
	if err := s.send("response.output_item.added", fields{"output_index": len(s.done), "item": item}); err != nil || p.kind == callPart {
		return err
	}
	return s.sendOf("response.content_part.added", fields{"part": contentOf(s.growing)})
}

// grow adds p to the item.
func (s *responseStream) grow(p part) error {
	s.growing.add(p)
	switch p.kind {
	case thoughtPart:
		return s.sendOf("response.reasoning_text.delta", fields{"delta": p.text})
	case callPart:
		if p.call.Arguments == "" {
			return nil
		}
		if s.growing.takesText { // the request asks for whole calls
			return s.sendOf("response.custom_tool_call_input.delta", fields{"delta": textOf(p.call.Arguments)})
		}
		return s.sendOf("response.function_call_arguments.delta", fields{"delta": p.call.Arguments})
	}
	score := []tokenScore{}
	if s.head.withScore {
		score = tokenScores(p.tokens, s.head.body.ReturnTokensAsTokenID)
		s.growing.score = append(s.growing.score, score...)
	}
	return s.sendOf("response.output_text.delta", fields{"delta": p.text, "logprobs": score})
}

// endItem completes the item that grows, if there is one.
func (s *responseStream) endItem(status string) error {
	g := s.growing
	content := contentOf(g)
	var err error
	switch g.kind {
	case noPart:
		return nil
	case thoughtPart:
		err = s.sendOf("response.reasoning_text.done", fields{"text": g.text})
	case callPart:
		if g.takesText {
			err = s.sendOf("response.custom_tool_call_input.done", fields{"input": textOf(g.text)})
			break
		}
		err = s.sendOf("response.function_call_arguments.done", fields{"name": g.name, "arguments": g.text})
	default:
		err = s.sendOf("response.output_text.done", fields{"text": g.text, "logprobs": content.LogProbs})
	}
	if err == nil && g.kind != callPart {
		err = s.sendOf("response.content_part.done", fields{"part": content})
	}
	if err != nil {
		return err
	}
	item := outputOf(s.id, g, status)
	err = s.send("response.output_item.done", fields{"output_index": len(s.done), "item": item})
	s.done, s.growing = append(s.done, item), growingPart{}
	return err
}

// finish ends the stream.
func (s *responseStream) finish(done infer.Done) error {
	if len(s.done) == 0 && s.growing.kind == noPart { // an answer has at least an empty message
		if err := s.beginItem(part{kind: textPart}); err != nil {
			return err
		}
	}
	response := s.head.response("completed")
	response.finish(done)
	if err := s.endItem(response.Status); err != nil {
		return err
	}
	response.Output = s.done
	return s.send("response."+response.Status, fields{"response": response})
}

// fail sends the error twice: some clients read one form, some the other.
func (s *responseStream) fail(err error) error {
	e := failure.Describe(promptIn(s.field, err)).Body().Error
	if err := s.send("error", fields{"code": e.Code, "message": e.Message, "param": e.Param}); err != nil {
		return err
	}
	response := s.head.response("failed")
	response.Output = append(response.Output, s.done...)
	response.Error = &ResponseError{Code: string(failure.Describe(err).Code), Message: e.Message}
	return s.send("response.failed", fields{"response": response})
}

func (s *responseStream) end() error { return nil }
