package handlers_test

import (
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
)

const unencrypted = "Not encrypted: others in this network can read along."

// Pages that others can read on their way say so, and say what to do.
func TestUnencrypted_PagesSaySo(t *testing.T) {
	for _, tc := range []struct {
		name, from string
		encrypted  bool
		says       bool
	}{
		{"another machine", "192.168.1.7:5000", false, true},
		{"another machine with IPv6", "[fd77::7]:5000", false, true},
		{"another machine over TLS", "192.168.1.7:5000", true, false},
		{"this machine", "127.0.0.1:5000", false, false},
		{"this machine with IPv6", "[::1]:5000", false, false},
		{"this machine, as an IPv6 socket has it", "[::ffff:127.0.0.1]:5000", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			engine := handlerstest.NewScript()
			s, chats := handlerstest.ServeStored(t, engine)
			id := saved(t, engine, chats)
			made, err := chats.Links.Add(t.Context(), access.Local, id, links.Wanted{Live: true})
			if err != nil {
				t.Fatal(err)
			}
			locked := handlerstest.Server(t, handlerstest.NewScript(), func(c *handlers.Config) {
				c.Asks, c.People = gate.AsksAll, handlerstest.PeopleOf(t, handlerstest.OpenStore(t), "open sesame")
			})
			handlerstest.FromAddress(s, tc.from, tc.encrypted)
			handlerstest.FromAddress(locked, tc.from, tc.encrypted)
			for page, body := range map[string]string{
				"the login":       handlerstest.Call(t, locked, "GET", "/login", "", "Accept", handlerstest.BrowserAccept).Body,
				"a new chat":      handlerstest.Call(t, s, "GET", "/", "", "Accept", handlerstest.BrowserAccept).Body,
				"a chat":          handlerstest.Call(t, s, "GET", "/c/"+id, "", "Accept", handlerstest.BrowserAccept).Body,
				"the shared chat": handlerstest.Call(t, s, "GET", "/s/"+made.Token, "", "Accept", handlerstest.BrowserAccept).Body,
			} {
				if !strings.Contains(body, "</html>") {
					t.Fatalf("%s is no page: %s", page, body)
				}
				if strings.Contains(body, unencrypted) != tc.says || strings.Contains(body, "<code>--tls</code>") != tc.says {
					t.Errorf("%s says so: %t, want %t", page, !tc.says, tc.says)
				}
			}
		})
	}
}

// saved returns the id of a chat with an answer.
func saved(t *testing.T, engine *handlerstest.Script, chats *live.Service) string {
	t.Helper()
	c, err := chats.Start(t.Context(), access.Local, live.Question{Text: "What is rain?", Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	answer := engine.Next(t)
	answer.Write("Water.")
	answer.Finish()
	return c.ID()
}
