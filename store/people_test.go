package store

import (
	"errors"
	"testing"
	"time"
)

func addPerson(t *testing.T, s *Store, name string) Person {
	t.Helper()
	p, err := s.AddPerson(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPeople_TheOwnerIsThereAndHasWhatWasThereBefore(t *testing.T) {
	s, conversation, _, _ := shared(t, Options{})
	list, err := s.People(t.Context())
	if err != nil || len(list) != 1 || !list[0].IsOwner || list[0].ID != OwnerID {
		t.Fatalf("got %+v (%v), want the owner alone", list, err)
	}
	if _, err := s.Conversation(t.Context(), list[0].ID, conversation); err != nil {
		t.Errorf("the owner lacks a chat of before: %v", err)
	}
	if err := s.ErasePerson(t.Context(), OwnerID); !errors.Is(err, ErrNotFound) {
		t.Errorf("erasing the owner: %v", err)
	}
	if _, err := s.Conversation(t.Context(), OwnerID, conversation); err != nil {
		t.Errorf("after an erasure that was refused: %v", err)
	}
}

func TestPeople_NamesAreUniqueWhateverTheirCase(t *testing.T) {
	s := mustOpen(t, testOptions(t))
	anna := addPerson(t, s, " Änna ")
	if anna.Name != "Änna" {
		t.Errorf("the name is %q", anna.Name)
	}
	for _, name := range []string{"Änna", "ÄNNA", "A\u0308nna", "owner"} {
		if _, err := s.AddPerson(t.Context(), name); !errors.Is(err, ErrConflict) {
			t.Errorf("%q beside Änna and Owner: %v", name, err)
		}
	}
	if _, err := s.AddPerson(t.Context(), " "); err == nil {
		t.Error("a person without a name was added")
	}
}

// What is a person's goes with them, and nothing else does.
func TestPeople_AnErasedPersonLeavesNothing(t *testing.T) {
	s := mustOpen(t, testOptions(t))
	anna, ben := addPerson(t, s, "Anna"), addPerson(t, s, "Ben")
	for _, p := range []Person{anna, ben} {
		c, err := s.CreateConversation(t.Context(), p.ID, Metadata{Title: "Rain " + p.Name})
		if err != nil {
			t.Fatal(err)
		}
		q, err := s.AddMessage(t.Context(), p.ID, c.ID, NewMessage{Role: RoleUser, Text: "secret of " + p.Name})
		if err != nil {
			t.Fatal(err)
		}
		_, shareErr := s.AddShare(t.Context(), p.ID, Share{Conversation: c.ID, First: q.ID}, hashOf("share "+p.ID))
		_, presetErr := s.CreatePreset(t.Context(), p.ID, Preset{Name: "mine"})
		_, deviceErr := s.AddDevice(t.Context(), Device{Person: p.ID, Label: "x"}, hashOf("device "+p.ID))
		_, keyErr := s.AddKey(t.Context(), p.ID, "x", hashOf("key "+p.ID))
		if err := errors.Join(shareErr, presetErr, deviceErr, keyErr, s.SetSetting(t.Context(), p.ID, "theme", []byte(`"dark"`))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ErasePerson(t.Context(), anna.ID); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"conversations WHERE owner = ?", "presets WHERE owner = ?", "settings WHERE owner = ?",
		"people WHERE id = ?", "devices WHERE person = ?", "api_keys WHERE person = ?"} {
		for _, p := range []Person{anna, ben} {
			var n int
			if err := s.readers.QueryRow("SELECT count(*) FROM "+table, p.ID).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if want := map[string]int{anna.ID: 0, ben.ID: 1}[p.ID]; n != want {
				t.Errorf("%s has %d rows in %s, want %d", p.Name, n, table, want)
			}
		}
	}
	found, err := s.Search(t.Context(), ben.ID, Query{Text: "secret"})
	if err != nil || len(found.Messages) != 1 {
		t.Errorf("Ben finds %+v (%v)", found, err)
	}
	if shares, err := s.Shares(t.Context()); err != nil || len(shares) != 1 || shares[0].Owner != ben.ID {
		t.Errorf("the links are %+v (%v)", shares, err)
	}
	if err := s.ErasePerson(t.Context(), anna.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("erasing again: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000).UTC()
	opt := testOptions(t)
	opt.Now = func() time.Time { return now }
	s := mustOpen(t, opt)
	anna, ben := addPerson(t, s, "Anna"), addPerson(t, s, "Ben")
	device, err := s.AddDevice(t.Context(), Device{Person: anna.ID, Label: "Firefox on Linux"}, hashOf("cookie"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.AddKey(t.Context(), anna.ID, "script", hashOf("key"))
	if err != nil {
		t.Fatal(err)
	}
	if found, p, err := s.DeviceWith(t.Context(), hashOf("cookie")); err != nil || found.ID != device.ID || p.ID != anna.ID || !found.Seen.Equal(now) {
		t.Errorf("by the cookie there is %+v of %+v (%v)", found, p, err)
	}
	if found, p, err := s.KeyWith(t.Context(), hashOf("key")); err != nil || found.ID != key.ID || p.ID != anna.ID || !found.Used.IsZero() {
		t.Errorf("by the key there is %+v of %+v (%v)", found, p, err)
	}
	later := now.Add(time.Hour)
	if err := s.Seen(t.Context(), map[int64]time.Time{device.ID: later, 99: later}, map[int64]time.Time{key.ID: later}); err != nil {
		t.Fatal(err)
	}
	devices, err := s.Devices(t.Context(), anna.ID)
	keys, keysErr := s.Keys(t.Context(), anna.ID)
	if err != nil || keysErr != nil || !devices[0].Seen.Equal(later) || !keys[0].Used.Equal(later) {
		t.Errorf("got %+v (%v) and %+v (%v)", devices, err, keys, keysErr)
	}
	for name, err := range map[string]error{
		"a cookie that is a key":   err3(s.DeviceWith(t.Context(), hashOf("key"))),
		"a key that is a cookie":   err3(s.KeyWith(t.Context(), hashOf("cookie"))),
		"a device of nobody":       err2(s.AddDevice(t.Context(), Device{Person: "nobody", Label: "x"}, hashOf("x"))),
		"a key of nobody":          err2(s.AddKey(t.Context(), "nobody", "x", hashOf("x"))),
		"another's device":         s.RemoveDevice(t.Context(), ben.ID, device.ID),
		"another's key":            s.RemoveKey(t.Context(), ben.ID, key.ID),
		"a device that is not one": s.RemoveDevice(t.Context(), anna.ID, 99),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.RemoveDevicesUnseen(t.Context(), later, now); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Devices(t.Context(), anna.ID); err != nil || len(list) != 1 {
		t.Errorf("a device seen just now is gone: %+v (%v)", list, err)
	}
	if err := errors.Join(s.RemoveDevicesUnseen(t.Context(), later.Add(1*time.Millisecond), now), s.RemoveKey(t.Context(), anna.ID, key.ID)); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Devices(t.Context(), anna.ID); err != nil || len(list) != 0 {
		t.Errorf("a device unseen for long is there: %+v (%v)", list, err)
	}
}

func err2[T any](_ T, err error) error { return err }

func err3[T, U any](_ T, _ U, err error) error { return err }
