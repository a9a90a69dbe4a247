package stream

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Command is what a page sends, a frame of text with one JSON object.
//
// Commands carry a type and a ref, a number that the reply repeats. Unknown
// fields are refused. At most 20 commands a second, with bursts of 40, and 256
// KiB in one; a page that sends more is disconnected with 1008 or 1009.
//
//	{"type":"open","ref":1,"chat":"ID","since":0}               follow this chat after event since; with "at":4 and no since: with the messages around message 4, if the branch has it
//	{"type":"send","ref":2,"text":…,"system":…,"settings":{…}}  ask; starts a new chat if none is open
//	{"type":"send","ref":2,…,"pictures":["HASH"]}               ask about pictures, which were uploaded with POST /pictures; in an edit those of the message, too
//	{"type":"send","ref":2,…,"unanswered":true}                 add the question without an answer, for a contact sheet of it
//	{"type":"stop","ref":3,"answer":4}                          end the answer with this id, keep its text
//	{"type":"stop","ref":3,"answer":4,"thinking":true}          end its reasoning alone: the answer continues after that
//	{"type":"regenerate","ref":4,"answer":4,"system":…,"settings":{…}}        answer that question again: a new version of the answer; 0: of the last one
//	{"type":"edit","ref":5,"message":3,"text":…,"system":…,"settings":{…}}    ask something else there: a new version of the question, and its answer
//	{"type":"rewrite","ref":6,"answer":4,"text":…,"reasoning":…}    add a version of the answer that the person wrote, marked edited
//	{"type":"continue","ref":7,"answer":4,"settings":{…}}       continue the last answer; seed -1: the seed it had
//	{"type":"continue","ref":7,"answer":4,"past_end":true,"settings":{…}}     the same for an answer that the model or a stop string ended: without an end there, or without that stop string
//	{"type":"rewind","ref":7,"answer":4,"keep":40,"settings":{…}}             stop this answer if it runs, and go on after its first 40 tokens: a new version of the answer; seed -1: the seed it had. With "token":7 or "text":… that token, or those of the text, come next
//	{"type":"result","ref":7,"answer":4,"text":…,"system":…,"settings":{…}}   the result of the call with which the last answer ended; the model goes on
//	{"type":"prune","ref":7,"message":4}                        delete this version of a message, and all that follows it
//	{"type":"delete","ref":7,"message":4}                       delete this message alone; one of several versions goes with what follows it
//	{"type":"select","ref":8,"message":4,"version":2}           show this version of the message, and what followed it last; 0: the message itself
//	{"type":"fork","ref":9,"message":4}                         copy the branch up to the message into a new chat; the ack has its id, and the open chat stays open
//	{"type":"older","ref":10,"before":4}                        send the messages before this one
//	{"type":"newer","ref":11,"after":4}                         send the messages after this one
//	{"type":"panel","ref":11,"settings":{…},"system":…,"preset":"precise"}    keep these for the next answer of this chat
//	{"type":"replay","ref":12,"answer":4}                       generate this answer again from its receipt and compare; stop ends it
//	{"type":"activity","ref":13,"on":true}                      send what the engine does and for whom, until "on":false
//	{"type":"typing","ref":14}                                  the person types in the open chat: others who write there see it
//	{"type":"ping","ref":15}                                    check the connection
//
// settings has the fields of setting.Settings; a missing one has its default. A send
// that begins a chat may have "temporary":true: that chat is never stored; and "model": the name
// of the one that answers it until a person chooses another, else the one that is loaded then; and "raw":true: in that chat the texts go
// to the model as they are, one after the other, without its chat template; and "preset": the id
// of the one that the settings came from. While an answer is written, only open, stop, rewind,
// older, newer, fork, panel, activity, typing and ping fit; the others get the error "conflict" with the state.
type Command struct {
	store.Opening
	Type       string            `json:"type"`
	Ref        int64             `json:"ref"`
	Chat       string            `json:"chat"`
	Since      int64             `json:"since"`
	Text       string            `json:"text"`
	Reasoning  string            `json:"reasoning"`
	System     string            `json:"system"`
	Temporary  bool              `json:"temporary"`
	On         bool              `json:"on"`
	PastEnd    bool              `json:"past_end"`
	Thinking   bool              `json:"thinking"`
	Unanswered bool              `json:"unanswered"`
	Keep       int               `json:"keep"`
	Pictures   []string          `json:"pictures"`
	Preset     string            `json:"preset"`
	Answer     int64             `json:"answer"`
	Token      *int32            `json:"token"`
	Message    int64             `json:"message"`
	Version    int               `json:"version"`
	At         int64             `json:"at"`
	Before     int64             `json:"before"`
	After      int64             `json:"after"`
	Settings   *setting.Settings `json:"settings"`
}

func decodeCommand(frame []byte) (Command, error) {
	settings := setting.Default()
	c := Command{Settings: &settings}
	decoder := json.NewDecoder(strings.NewReader(string(frame)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return Command{Ref: c.Ref}, fault.Invalid(jsonField(err), "the command cannot be read: %v", err)
	}
	if c.Settings == nil {
		c.Settings = &settings
	}
	return c, nil
}

// jsonField names the field that a decoding error is about, if it says so.
func jsonField(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	}
	return ""
}

// execute carries out one command.
func (s *session) execute(ctx context.Context, c Command) (reply, error) {
	switch c.Type {
	case "ping":
		return reply{}, nil
	case "activity":
		s.watches.Store(c.On)
		return reply{}, nil
	case "open":
		chat, err := s.live.Chat(ctx, s.who, c.Chat)
		if err != nil {
			return reply{}, err
		}
		return s.follow(ctx, chat, c.Since, c.At)
	case "send":
		question := live.Question{Text: c.Text, System: c.System, Settings: *c.Settings, Opening: c.Opening, Preset: c.Preset, Unanswered: c.Unanswered, Pictures: c.Pictures}
		if s.chat != nil {
			return reply{}, s.chat.Send(ctx, s.who, question)
		}
		chat, err := s.live.Start(ctx, s.who, question, c.Temporary)
		if err != nil {
			return reply{}, err
		}
		return s.follow(ctx, chat, 0, 0)
	}
	if s.chat == nil {
		return reply{}, fault.Invalid("chat", "no chat is open on this connection")
	}
	return s.change(ctx, c)
}

// change carries out one command on the open chat.
func (s *session) change(ctx context.Context, c Command) (reply, error) {
	chat := s.chat
	switch c.Type {
	case "stop":
		if c.Thinking {
			return reply{}, chat.StopThinking(ctx, s.who, c.Answer)
		}
		return reply{}, chat.Stop(ctx, s.who, c.Answer)
	case "regenerate":
		return reply{}, chat.Regenerate(ctx, s.who, c.Answer, c.System, *c.Settings)
	case "edit":
		return reply{}, chat.Edit(ctx, s.who, c.Message, live.Question{Text: c.Text, System: c.System, Settings: *c.Settings, Pictures: c.Pictures})
	case "result":
		return reply{}, chat.Result(ctx, s.who, c.Answer, live.Question{Text: c.Text, System: c.System, Settings: *c.Settings})
	case "replay":
		return reply{}, s.inspect.Replay(ctx, s.who, chat, c.Answer)
	case "rewrite":
		return reply{}, chat.Rewrite(ctx, s.who, c.Answer, c.Text, c.Reasoning)
	case "continue":
		if c.PastEnd {
			return reply{}, chat.ContinuePastEnd(ctx, s.who, c.Answer, *c.Settings)
		}
		return reply{}, chat.Continue(ctx, s.who, c.Answer, *c.Settings)
	case "rewind":
		return reply{}, chat.Rewind(ctx, s.who, c.Answer, c.Keep, live.Next{Token: c.Token, Text: c.Text}, *c.Settings)
	case "prune":
		return reply{}, chat.Prune(ctx, s.who, c.Message)
	case "delete":
		return reply{}, chat.Delete(ctx, s.who, c.Message)
	case "panel":
		seq, err := chat.SetPanel(ctx, s.who, live.Panel{Settings: *c.Settings, Preset: c.Preset}, c.System)
		return reply{seq: seq}, err
	case "typing":
		return reply{}, s.guests.OwnerTypes(s.who, chat)
	case "select":
		return reply{}, chat.Select(ctx, s.who, c.Message, c.Version)
	case "fork":
		id, err := s.live.Fork(ctx, s.who, chat, c.Message)
		return reply{chat: id}, err
	case "older":
		messages, more, err := chat.Older(ctx, s.who, c.Before)
		if err != nil {
			return reply{}, err
		}
		frame := Frame{Type: "older", Ref: c.Ref, Before: c.Before, Messages: newMessages(ctx, messages), More: more}
		return reply{frames: []Frame{frame}}, nil
	case "newer":
		messages, more, err := chat.Newer(ctx, s.who, c.After)
		if err != nil {
			return reply{}, err
		}
		frame := Frame{Type: "newer", Ref: c.Ref, After: c.After, Messages: newMessages(ctx, messages), More: more}
		return reply{frames: []Frame{frame}}, nil
	}
	return reply{}, fault.Invalid("type", "there is no command %q", c.Type)
}
