// Package access authorizes: Authorize is the only place that decides who may do what. The gate
// puts the principal of a request into its context. The package knows no HTTP.
package access

import (
	"context"
	"strings"

	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Principal is on whose behalf a use case runs: a person, or whoever has the link to a shared
// chat. The zero value is an anonymous client, which may do nothing.
type Principal struct {
	Owner  string       // id of the person, which is the owner of everything of theirs; empty: no person
	Role   Role         // of the person
	Share  *store.Share // link to a shared chat; nil: none
	Writer int64        // who was given write access to that chat; 0: no one
}

// Link returns the id of who's link; 0: none.
func (who Principal) Link() int64 {
	if who.Share == nil {
		return 0
	}
	return who.Share.ID
}

// Role is what a person is to the server.
type Role string

const (
	RolePerson  Role = ""        // uses the server
	RoleOwner   Role = "owner"   // also manages models and people
	RoleVisitor Role = "visitor" // is let in without a login, for a while; nothing of theirs is stored
)

// visitorPrefix begins the ids of visitors. Those of people have no hyphen.
const visitorPrefix = "visitor-"

// Visitor returns the principal of the requests of a visitor with a new id.
func Visitor() Principal { return Principal{Owner: visitorPrefix + store.NewID(), Role: RoleVisitor} }

// IsVisitor reports whether an owner is a visitor.
func IsVisitor(owner string) bool { return strings.HasPrefix(owner, visitorPrefix) }

// Local is the owner of the server. Requests from this machine are the owner's.
var Local = Principal{Owner: store.OwnerID, Role: RoleOwner}

// Of returns the principal of a person's requests.
func Of(p store.Person) Principal {
	if p.IsOwner {
		return Principal{Owner: p.ID, Role: RoleOwner}
	}
	return Principal{Owner: p.ID}
}

type contextKey struct{}

// With returns a context for requests on behalf of who.
func With(ctx context.Context, who Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// PrincipalOf returns the principal that With put into a context, or the zero value.
func PrincipalOf(ctx context.Context) Principal {
	who, _ := ctx.Value(contextKey{}).(Principal)
	return who
}

// Action is what a principal wants to do with an object.
type Action string

const (
	ActionRead   Action = "read"
	ActionChange Action = "change"
	ActionAsk    Action = "ask"    // use the engine
	ActionShare  Action = "share"  // let others follow a chat
	ActionFollow Action = "follow" // read what a link shows
	ActionWrite  Action = "write"  // ask in the chat of a link, and stop the answers to that
	ActionManage Action = "manage" // administer models or people
	ActionImport Action = "import" // make a chat of a file
)

// Object is what a use case is about.
type Object struct {
	Kind  Kind
	Owner string // person it belongs to; empty: the server
	ID    string // of a chat; empty: any
}

// Kind is a kind of objects.
type Kind string

const (
	KindChat    Kind = "chat"
	KindPreset  Kind = "preset"
	KindSetting Kind = "setting"
	KindModel   Kind = "model"  // belongs to the server
	KindPerson  Kind = "person" // with name, devices and keys; belongs to itself
	KindAnswer  Kind = "answer" // that is being generated, without its text

	KindPassphrase Kind = "passphrase" // with which the person it belongs to logs in
)

// ErrDenied says that the principal may not do what it wants with an object.
var ErrDenied = fault.New(fault.CodeDenied, "only the owner of this server can do this")

// ErrVisitor says that a visitor may not do with what is theirs, or the server's, what people may.
var ErrVisitor = &fault.Error{Code: fault.CodeDenied, Title: "Visitors cannot do this", Message: "you are here without a login, and this needs one: ask the owner of this server for a code, and open /login"}

// Authorize returns nil if who may do action to an object, else ErrDenied or ErrVisitor. Every use case calls it
// first. Whoever has a link may follow its chat, write there if the owner of the chat gave them
// write access, and do nothing else. A person may do everything
// with their own objects, and use the models. The owner of the server also manages models and
// people, and sees and stops the answers of others, but has no access to their chats, presets and
// settings, and can remove but not change their passphrases. A visitor may read, change and ask in chats of their own, read what
// presets and settings there are, and use the models.
func Authorize(who Principal, action Action, what Object) error {
	owner := who.Role == RoleOwner
	allowed := false
	switch {
	case who.Share != nil:
		shared := what == Object{KindChat, who.Share.Owner, who.Share.Conversation}
		allowed = shared && (action == ActionFollow || action == ActionWrite && who.Writer != 0)
	case who.Owner == "" || action == ActionFollow || action == ActionWrite:
	case who.Role == RoleVisitor:
		own := what.Owner == who.Owner
		switch what.Kind {
		case KindModel:
			allowed = action == ActionRead || action == ActionAsk
		case KindChat:
			allowed = own && (action == ActionRead || action == ActionChange || action == ActionAsk)
		case KindPreset, KindSetting:
			allowed = own && action == ActionRead
		case KindAnswer:
			allowed = own && (action == ActionRead || action == ActionChange)
		}
		if !allowed && (own || what.Owner == "") {
			return ErrVisitor
		}
	case action == ActionManage:
		allowed = owner && (what.Kind == KindModel || what.Kind == KindPerson || what.Kind == KindPassphrase)
	case what.Kind == KindModel:
		allowed = action == ActionRead || action == ActionAsk
	case what.Kind == KindPerson, what.Kind == KindAnswer:
		allowed = owner || what.Owner == who.Owner
	default:
		allowed = what.Owner == who.Owner
	}
	if !allowed {
		return ErrDenied
	}
	return nil
}
