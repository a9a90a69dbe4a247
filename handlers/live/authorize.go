package live

import (
	"context"

	"m40-llm/store"
)

// Principal is on whose behalf a use case runs: a person, or whoever has the link to a shared
// chat. There is one person so far.
type Principal struct {
	Owner string       // of the chats, folders, presets and settings that are its own; empty: no person
	share *store.Share // the link that it has
}

// Owner is whose conversations and settings those of this machine are.
const Owner = "local"

// Local is the person at this machine.
var Local = Principal{Owner: Owner}

// PrincipalOf returns on whose behalf a request with this context is carried out: so far it is
// always the person at this machine.
func PrincipalOf(context.Context) Principal { return Local }

// Action is what a principal wants to do with an object.
type Action string

const (
	ActionRead   Action = "read"
	ActionChange Action = "change"
	ActionAsk    Action = "ask"    // makes the engine work
	ActionShare  Action = "share"  // lets others follow
	ActionFollow Action = "follow" // reads what a link shows
)

// Object is what a use case is about.
type Object struct {
	Kind  Kind
	Owner string
	ID    string // of a chat
}

// Kind is a kind of objects.
type Kind string

const (
	KindChat    Kind = "chat"
	KindPreset  Kind = "preset"
	KindSetting Kind = "setting"
)

// authorize returns nil if who may do what to an object; else ErrNotFound, as for an object
// that does not exist: who may not see a thing does not learn that it is there. Every use
// case comes through here first. Who has a link may follow its chat, and do nothing else.
func authorize(who Principal, action Action, what Object) error {
	if who.share != nil {
		if action == ActionFollow && what == (Object{KindChat, who.share.Owner, who.share.Conversation}) {
			return nil
		}
		return ErrNotFound
	}
	if who.Owner == "" || what.Owner != who.Owner || action == ActionFollow {
		return ErrNotFound
	}
	return nil
}

// may authorizes what who does with things of its own.
func (who Principal) may(what Action, kind Kind) error {
	return authorize(who, what, Object{Kind: kind, Owner: who.Owner})
}

// may authorizes what who does with the chat.
func (c *Chat) may(who Principal, what Action) error {
	return authorize(who, what, Object{KindChat, c.owner, c.id})
}
