package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"m40-llm/infer/fixtures"
)

// A small disk of its own needs leave to mount, and so is for torture by root alone.
func init() {
	if fixtures.Torture() && os.Geteuid() == 0 {
		fullDisks = append(fullDisks, struct {
			name string
			run  func(t *testing.T, check func(t *testing.T, s *Store, fill, clear func(), point int))
		}{"a file system in memory is full", onFullTmpfs})
	}
}

func onFullTmpfs(t *testing.T, check func(t *testing.T, s *Store, fill, clear func(), point int)) {
	for point := range 64 {
		dir := privateDir(t)
		mustDo(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"))
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		s := mustOpen(t, Options{Path: filepath.Join(dir, "chats.db"), MinFree: 1, Ballast: 64 << 10})
		filler := filepath.Join(dir, "filler")
		check(t, s, func() {
			free := must[int64](t)(freeSpace(dir))
			mustDo(t, os.WriteFile(filler, bytes.Repeat([]byte("x"), int(free)-point*4096), 0o600))
		}, func() {
			mustDo(t, os.Remove(filler))
		}, point)
		if size(s.opt.Path+".ballast") != 64<<10 {
			t.Error(fmt.Sprintf("point %d: the ballast was not filled again", point))
		}
	}
}
