package live

import "m40-llm/handlers/access"

// Principal is on whose behalf a use case runs.
type Principal = access.Principal

// Authorize returns nil if who may do what to an object; else ErrNotFound, as for an object
// that does not exist: who may not see a thing does not learn that it is there. Every use
// case comes through here first.
func Authorize(who Principal, action access.Action, what access.Object) error {
	if access.Authorize(who, action, what) != nil {
		return ErrNotFound
	}
	return nil
}

// may authorizes what who does with things of its own.
func may(who Principal, what access.Action, kind access.Kind) error {
	return Authorize(who, what, access.Object{Kind: kind, Owner: who.Owner})
}

// Object returns the chat as what a use case is about.
func (c *Chat) Object() access.Object {
	return access.Object{Kind: access.KindChat, Owner: c.owner, ID: c.id}
}

// mayManageModels authorizes who to administer models, and what is stored for them.
func mayManageModels(who Principal) error {
	return access.Authorize(who, access.ActionManage, access.Object{Kind: access.KindModel})
}

// may authorizes what who does with the chat.
func (c *Chat) may(who Principal, what access.Action) error { return Authorize(who, what, c.Object()) }
