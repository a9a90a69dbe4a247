package live

import (
	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
)

// Principal is on whose behalf a use case runs.
type Principal = access.Principal

// Object returns the chat as what a use case is about.
func (c *Chat) Object() access.Object {
	return access.Object{Kind: access.KindChat, Owner: c.owner, ID: c.id}
}

// may authorizes what who does with the chat.
func (c *Chat) may(who Principal, what access.Action) error {
	return owned.Authorize(who, what, c.Object())
}
