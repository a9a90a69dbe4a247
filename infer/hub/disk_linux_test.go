package hub

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/hub/hubtest"
)

// TestFullDisk pulls onto disks that are too small, though their system says otherwise,
// and again when there is room. Disks of its own need leave to mount, and so all but the
// first part is for torture by root alone.
func TestFullDisk(t *testing.T) {
	t.Run("a journal without room takes that of the last bytes", func(t *testing.T) {
		d := infer.Download{File: "org/repo/" + modelFile, Size: int64(len(wanted)), SHA256: hubtest.Sum(wanted)}
		part := writePartial(t, t.TempDir(), d, wanted[:200<<10])
		defer part.close()
		part.saved = 0
		part.makeRoom()
		if j := readJournal(part.root, d.File); j.Offset != 200<<10-64<<10 || !j.resumes(d) {
			t.Errorf("the journal is %+v", j)
		}
		got := make([]byte, len(wanted))
		part.file.ReadAt(got, 0)
		if n := 200<<10 - 64<<10; !bytes.Equal(got[:n], wanted[:n]) || bytes.ContainsFunc(got[n:], func(r rune) bool { return r != 0 }) {
			t.Error("the file does not hold what the journal says and nothing else")
		}
	})
	if os.Getenv("M40_LLM_TORTURE") == "" || os.Geteuid() != 0 {
		return
	}
	for point := range 32 {
		kib := 40 + point*len(wanted)/32>>10
		t.Run(fmt.Sprintf("a disk of %d KiB", kib), func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(dir, 0)
			f := hubtest.New(t, map[string][]byte{modelFile: wanted}, modelFile)
			p := newPuller(t, dir, f.API.URL)
			err := p.pull(t.Context(), "org/repo:Q8_0", false)
			if kib<<10 < len(wanted) && (err == nil || !strings.Contains(err.Error(), "is full after")) {
				t.Errorf("got %v", err)
			}
			checkLoadable(t, dir, wanted)
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=4m"); err != nil {
				t.Fatal(err)
			}
			if err := p.pull(t.Context(), "org/repo:Q8_0", false); err != nil || !checkLoadable(t, dir, wanted) {
				t.Errorf("with room it gives %v", err)
			}
			if asked := f.Asked("cdn"); kib > 400 && kib<<10 < len(wanted) && asked[len(asked)-1].Header.Get("Range") == "" {
				t.Error("it started anew")
			}
		})
	}
}
