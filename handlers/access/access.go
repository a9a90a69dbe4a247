// Package access says who may do what: Authorize is the one place that decides it. Who asks is in
// the context of a request; the gate puts it there. It knows no HTTP.
package access

import (
	"context"
	"errors"

	"m40-llm/store"
)

// Principal is on whose behalf a use case runs: a person, whoever has the link to a shared chat,
// or with neither nobody, who may do nothing.
type Principal struct {
	Owner string       // id of the person: what is theirs has it as its owner; empty: no person
	Role  Role         // of the person
	Share *store.Share // the link that it has
}

// Link identifies the link that who has; 0: none.
func (who Principal) Link() int64 {
	if who.Share == nil {
		return 0
	}
	return who.Share.ID
}

// Role is what a person is to the server.
type Role string

const (
	RolePerson Role = ""      // has things of their own
	RoleOwner  Role = "owner" // manages models and people too
)

// Local is the owner of the server, as whoever sits at this machine is.
var Local = Principal{Owner: store.OwnerID, Role: RoleOwner}

// Of returns on whose behalf a person's request is carried out.
func Of(p store.Person) Principal {
	if p.IsOwner {
		return Principal{Owner: p.ID, Role: RoleOwner}
	}
	return Principal{Owner: p.ID}
}

type contextKey struct{}

// With returns a context of a request that is carried out on behalf of who.
func With(ctx context.Context, who Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// PrincipalOf returns on whose behalf a request with this context is carried out: nobody's, if
// the gate did not say.
func PrincipalOf(ctx context.Context) Principal {
	who, _ := ctx.Value(contextKey{}).(Principal)
	return who
}

// Action is what a principal wants to do with an object.
type Action string

const (
	ActionRead   Action = "read"
	ActionChange Action = "change"
	ActionAsk    Action = "ask"    // makes the engine work
	ActionShare  Action = "share"  // lets others follow
	ActionFollow Action = "follow" // reads what a link shows
	ActionManage Action = "manage" // what the owner of the server alone does
)

// Object is what a use case is about.
type Object struct {
	Kind  Kind
	Owner string // person that it belongs to; empty: it is the server's
	ID    string // of a chat
}

// Kind is a kind of objects.
type Kind string

const (
	KindChat    Kind = "chat"
	KindPreset  Kind = "preset"
	KindSetting Kind = "setting"
	KindModel   Kind = "model"  // belongs to the server
	KindPerson  Kind = "person" // with devices and keys; belongs to itself
)

// ErrDenied says that the principal may not do what it wants with an object.
var ErrDenied = errors.New("only the owner of this server can do this")

// Authorize returns nil if who may do what to an object, else ErrDenied. Every use case comes
// through here first. Who has a link may follow its chat, and do nothing else. A person does what
// they like with what is theirs, and uses the models. The owner of the server manages models and
// people, and has no part in what belongs to others.
func Authorize(who Principal, action Action, what Object) error {
	owner := who.Role == RoleOwner
	allowed := false
	switch {
	case who.Share != nil:
		allowed = action == ActionFollow && what == (Object{KindChat, who.Share.Owner, who.Share.Conversation})
	case who.Owner == "" || action == ActionFollow:
	case action == ActionManage:
		allowed = owner && (what.Kind == KindModel || what.Kind == KindPerson)
	case what.Kind == KindModel:
		allowed = action == ActionRead || action == ActionAsk
	case what.Kind == KindPerson:
		allowed = owner || what.Owner == who.Owner
	default:
		allowed = what.Owner == who.Owner
	}
	if !allowed {
		return ErrDenied
	}
	return nil
}
