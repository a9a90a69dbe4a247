package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"m40-llm/handlers/cli"
	"m40-llm/handlers/people"
	"m40-llm/store"
)

// setPassphrase executes the command passphrase. A passphrase is no flag: all users of a machine can
// see the arguments of its processes.
func setPassphrase(ctx context.Context, t *cli.Terminal, args []string) (err error) {
	f := cli.NewFlags("passphrase", "", fmt.Sprintf(`Sets the passphrase, of at least %d characters, with which you log in on other machines as the owner of this server.
It is asked for at the terminal; without one it is the first line of the standard input. Stop the server first,
or use its page People.`, people.MinPassphrase))
	dirs := folderFlags(f)
	remove := f.Bool("remove", "remove the passphrase: other machines log in with a code or a key")
	logOut := f.Bool("log-out", "also log out all devices of the owner")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	db, err := openStore(ctx, t, dirs, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	owner, err := db.Person(ctx, store.OwnerID)
	if err != nil {
		return err
	}
	hash := ""
	if !*remove {
		if hash, err = readPassphrase(t); err != nil {
			return err
		}
	}
	if *logOut {
		_, err = db.SetPassphraseAndLogOut(ctx, owner.ID, hash, 0)
	} else {
		err = db.SetPassphrase(ctx, owner.ID, hash)
	}
	if err != nil {
		return err
	}
	name := cli.Line(strconv.Quote(owner.Name))
	if *remove {
		_, err = fmt.Fprintf(t.Out, "%s has no passphrase now\n", name)
	} else {
		_, err = fmt.Fprintf(t.Out, "%s logs in on other machines with this passphrase; m40-llm --lan lets them in\n", name)
	}
	return err
}

// readPassphrase asks for a new passphrase and returns its hash.
func readPassphrase(t *cli.Terminal) (hash string, err error) {
	passphrase, err := t.ReadSecret("Passphrase: ", "Again: ")
	if err != nil {
		return "", err
	}
	return people.HashPassphrase(passphrase)
}
