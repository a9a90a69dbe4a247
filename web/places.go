package web

// place is a page that every other page has a link to.
type place struct{ name, title, address string }

// placesOf returns the places, in their order. chat is the id of the chat to go back to; empty: none.
func placesOf(chat string) []place {
	chats := "/"
	if chat != "" {
		chats = "/c/" + chat
	}
	return []place{
		{"/", "Chats", chats},
		{"/models", "Models", "/models"},
		{"/presets", "Presets", PresetsAddress("", chat)},
		{"/activity", "Activity", "/activity"},
		{"/settings", "Settings", "/settings"},
		{"/help", "Help", "/help"},
	}
}
