package hub

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/hub/hubtest"
)

// Pulls onto disks that are too small although statfs says otherwise, and again when there is
// room. All but the first part mount file systems, so they need root and M40_LLM_TORTURE.
func TestPull_ResumesAfterAFullDisk(t *testing.T) {
	t.Run("the last bytes are dropped to make room for the journal", func(t *testing.T) {
		d := infer.Download{File: "org/repo/" + modelFile, Size: int64(len(testModel)), SHA256: hubtest.Sum(testModel)}
		part := writePartial(t, t.TempDir(), d, testModel[:200<<10])
		defer part.close()
		part.saved = 0
		part.makeRoom()
		if j := readJournal(part.root, d.File); j.Offset != 200<<10-64<<10 || !j.resumes(d) {
			t.Errorf("got journal %+v", j)
		}
		got := make([]byte, len(testModel))
		part.file.ReadAt(got, 0)
		if n := 200<<10 - 64<<10; !bytes.Equal(got[:n], testModel[:n]) || bytes.ContainsFunc(got[n:], func(r rune) bool { return r != 0 }) {
			t.Error("the file differs from what the journal describes")
		}
	})
	if !fixtures.Torture() || os.Geteuid() != 0 {
		return
	}
	for point := range 32 {
		kib := 40 + point*len(testModel)/32>>10
		t.Run(fmt.Sprintf("a disk of %d KiB", kib), func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(dir, 0)
			f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
			p := newPuller(t, dir, f.API.URL)
			err := p.pull(t.Context(), "org/repo:Q8_0", false)
			if kib<<10 < len(testModel) && (err == nil || !strings.Contains(err.Error(), "is full after")) {
				t.Errorf("got %v", err)
			}
			checkLoadable(t, dir, testModel)
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=4m"); err != nil {
				t.Fatal(err)
			}
			if err := p.pull(t.Context(), "org/repo:Q8_0", false); err != nil || !checkLoadable(t, dir, testModel) {
				t.Errorf("with room Pull returned %v", err)
			}
			if asked := f.Requests("cdn"); kib > 400 && kib<<10 < len(testModel) && asked[len(asked)-1].Header.Get("Range") == "" {
				t.Error("the pull did not resume")
			}
		})
	}
}
