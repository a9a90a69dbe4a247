package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"m40-llm/handlers/cli"
	"m40-llm/store"
)

const (
	chatsFile   = "chats.db"         // in the data folder
	keepDeleted = 7 * 24 * time.Hour // how long a deleted chat can be restored
	backupEvery = 24 * time.Hour
)

// openStore opens the database of the chats in the data folder. It erases the chats that
// were deleted more than keepDeleted ago: erasing blocks writers, and there are none yet.
func openStore(ctx context.Context, t *cli.Terminal, f folders, logger *slog.Logger) (*store.Store, error) {
	dir, err := f.dataDir(t)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, chatsFile)
	db, err := store.Open(ctx, store.Options{Path: path, Log: logger})
	if err != nil {
		return nil, ifRunning(err)
	}
	if db.BeginsAnew() {
		advice := "there are no backups of those that were there"
		if backups, err := store.Backups(path); err == nil && len(backups) > 0 {
			advice = fmt.Sprintf("m40-llm restore lists the backups of those that were there (%d)", len(backups))
		}
		fmt.Fprintf(t.Err, "m40-llm: note: there was no %s, so the chats begin anew; %s\n", cli.Line(strconv.Quote(path)), advice)
	}
	if _, err := db.EraseDeleted(ctx, time.Now().Add(-keepDeleted)); err != nil {
		logger.Warn("failed to erase deleted chats", "error", err)
	}
	return db, nil
}

// ifRunning adds cli.ErrRunning to the error of the store if a server has its file open.
func ifRunning(err error) error {
	if _, locked := errors.AsType[*store.LockedError](err); locked {
		return fmt.Errorf("%w: %w", cli.ErrRunning, err)
	}
	return err
}

// restoreChats executes the command restore.
func restoreChats(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("restore", "[NUMBER]", `Restores the chats from the backup with this number; without a number it lists the backups.
Stop the server first. The chats that the backup replaces are kept in a file under another name.`)
	dirs := folderFlags(f)
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	dir, err := dirs.dataDir(t)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, chatsFile)
	backups, err := store.Backups(path)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		if len(backups) == 0 {
			return fmt.Errorf("there are no backups of %s yet; serve makes one a day", path)
		}
		rows := make([]cli.Backup, len(backups))
		for i, b := range backups {
			rows[i] = cli.Backup{Number: b.Number, Made: b.Made, Size: b.Size}
		}
		return cli.Backups(t.Results(), rows)
	}
	number, err := strconv.Atoi(rest[0])
	if err != nil {
		return cli.Usagef("%q is not the number of a backup; m40-llm restore lists them", rest[0])
	}
	at := slices.IndexFunc(backups, func(b store.Backup) bool { return b.Number == number })
	if at < 0 {
		return fmt.Errorf("backup %d does not exist; m40-llm restore lists them", number)
	}
	replaced, err := store.Restore(ctx, store.Options{Path: path}, backups[at].Path)
	if err != nil {
		return ifRunning(err)
	}
	fmt.Fprintf(t.Err, "m40-llm: restored the chats of %s\n", backups[at].Made.Local().Format("2006-01-02 15:04"))
	if replaced != "" {
		fmt.Fprintf(t.Err, "m40-llm: the replaced chats are kept as %s\n", replaced)
	}
	return nil
}
