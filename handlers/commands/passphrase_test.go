package commands

import (
	"log/slog"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
	"m40-llm/store"
)

func TestPassphrase(t *testing.T) {
	data := t.TempDir()
	for _, c := range []struct {
		name, in string
		args     string
		want     result // out and errs: parts that must be there
		stored   string // the beginning of what is stored then
	}{
		{"a short one is refused", "hunter2\n", "", result{1, "", "the passphrase has 7 characters and needs at least 12"}, ""},
		{"nothing is refused", "", "", result{1, "", "the passphrase has 0 characters"}, ""},
		{"it is no argument", "", "correct-horse-battery", result{2, "", "one argument too many"}, ""},
		{"one line of the input is taken", "correct horse battery\nstaple\n", "", result{0, `"Owner" logs in on other machines with this passphrase`, ""}, "$argon2id$v=19$"},
		{"devices can be logged out", "battery horse correct", "--log-out", result{0, `"Owner" logs in`, ""}, "$argon2id$v=19$"},
		{"it is removed", "", "--remove", result{0, `"Owner" has no passphrase now`, ""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := devicesOf(t, data)
			got := execute(t, nil, c.in, append([]string{"passphrase", "--data", data}, strings.Fields(c.args)...)...)
			if got.code != c.want.code || !strings.Contains(got.out, c.want.out) || !strings.Contains(got.errs, c.want.errs) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			db := openChats(t, data)
			hash, err := db.Passphrase(t.Context(), store.OwnerID)
			if err != nil || !strings.HasPrefix(hash, c.stored) || (hash == "") != (c.stored == "") {
				t.Errorf("%q is stored (%v)", hash, err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			want := before
			if strings.Contains(c.args, "--log-out") {
				want = 0
			}
			if after := devicesOf(t, data); after != want {
				t.Errorf("%d devices are logged in, want %d", after, want)
			}
			addDevice(t, data)
		})
	}
}

func openChats(t *testing.T, data string) *store.Store {
	t.Helper()
	db, err := openStore(t.Context(), &cli.Terminal{Err: &strings.Builder{}}, folders{data: &data}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func devicesOf(t *testing.T, data string) int {
	t.Helper()
	db := openChats(t, data)
	defer db.Close()
	list, err := db.Devices(t.Context(), store.OwnerID)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func addDevice(t *testing.T, data string) {
	t.Helper()
	db := openChats(t, data)
	defer db.Close()
	if _, err := db.AddDevice(t.Context(), store.Device{Person: store.OwnerID, Label: "A device"}, store.TokenHash([]byte(strings.Repeat(t.Name(), 9)[:32]))); err != nil {
		t.Fatal(err)
	}
}
