package web

import (
	"context"
	"slices"

	"m40-llm/web/lang"
)

// place is a page that every other page has a link to.
type place struct{ name, title, address string }

// placesOf returns the places for who looks at the page, in their order. chat is the id of the chat to go back to; empty: none.
func placesOf(ctx context.Context, chat string) []place {
	chats := "/"
	if chat != "" {
		chats = "/c/" + chat
	}
	all := []place{
		{"/", lang.Key("Chats"), chats},
		{"/models", lang.Key("Models"), "/models"},
		{"/presets", lang.Key("Presets"), PresetsAddress("", chat)},
		{"/activity", lang.Key("Activity"), "/activity"},
		{"/settings", lang.Key("Settings"), "/settings"},
		{"/help", lang.Key("Help"), "/help"},
	}
	if isVisitor(ctx) { // they have neither presets of their own nor devices
		all = slices.DeleteFunc(all, func(p place) bool { return p.name == "/presets" || p.name == "/activity" })
	}
	return all
}
