package live

import (
	"context"
	"testing"
)

func TestChatsOfOnePersonAreOneClientAndThoseOfAnotherAreNot(t *testing.T) {
	s, engine := newService(t, Options{})
	client := func(who Principal) (client string) {
		t.Helper()
		c, err := s.Start(context.Background(), who, question("Why?"), true)
		must(t, err)
		a := <-engine.asked
		a.finish()
		settle(c)
		if a.request.CacheScope != who.Owner {
			t.Errorf("a chat of %s has the cache scope %q", who.Owner, a.request.CacheScope)
		}
		return a.request.Client
	}
	anna, again, ben := client(Principal{Owner: "anna"}), client(Principal{Owner: "anna"}), client(Principal{Owner: "ben"})
	if anna == "" || anna != again || anna == ben {
		t.Errorf("anna's chats are of the clients %q and %q, ben's is of %q", anna, again, ben)
	}
}
