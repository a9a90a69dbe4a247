package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"m40-llm/infer/units"
)

// Backup is a copy of the chats that can be restored.
type Backup struct {
	Number int
	Made   time.Time
	Size   int64 // bytes
}

// Backups prints a table of backups.
func Backups(w io.Writer, backups []Backup) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBER\tMADE\tSIZE")
	for _, b := range backups {
		fmt.Fprintf(table, "%d\t%s\t%s\n", b.Number, b.Made.Local().Format("2006-01-02 15:04"), units.ByteSize(b.Size))
	}
	return table.Flush()
}
