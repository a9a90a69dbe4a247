package web

import (
	"context"
	"slices"
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
		{"/", "Chats", chats},
		{"/models", "Models", "/models"},
		{"/presets", "Presets", PresetsAddress("", chat)},
		{"/activity", "Activity", "/activity"},
		{"/settings", "Settings", "/settings"},
		{"/help", "Help", "/help"},
	}
	if isVisitor(ctx) { // they have neither presets of their own nor devices
		all = slices.DeleteFunc(all, func(p place) bool { return p.name == "/presets" || p.name == "/activity" })
	}
	return all
}
