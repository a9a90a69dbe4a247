package kvfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var guide = Identity{Model: "guide", Key: "guide on a cpu", BlockBytes: []int{300, 30}, Positions: 4}

// tokensOf returns the tokens of n records, and blockOf the blocks of record i.
func tokensOf(n int) (tokens []int32) {
	for i := range n * guide.Positions {
		tokens = append(tokens, int32(i*i))
	}
	return tokens
}

// groupsOf returns the groups of which record i has a block.
func groupsOf(i int) Groups { return Groups(1).With(i % 2) }

func blockOf(i int) []byte {
	return bytes.Repeat([]byte{byte(i), 0xee, byte(3 * i)}, guide.DataBytes(groupsOf(i))/3)
}

func newDir(t *testing.T) *Dir {
	t.Helper()
	d, err := OpenDir(filepath.Join(t.TempDir(), "kv"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func openFile(t *testing.T, d *Dir, name string, id Identity) *File {
	t.Helper()
	f, err := d.Open(name, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// write writes n blocks to the file called name.
func write(t *testing.T, d *Dir, name string, n int) {
	t.Helper()
	if err := d.Allow(name); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, d, name, guide)
	for i := f.Match(tokensOf(n)); i < n; i++ {
		if err := f.Append(tokensOf(n)[4*i:4*i+4], groupsOf(i), blockOf(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// valid returns how many blocks of the file are as they were written. It fails the test if a block that the
// file returns is another one.
func valid(t *testing.T, d *Dir, name string, id Identity) int {
	t.Helper()
	f := openFile(t, d, name, id)
	for i := range f.Match(tokensOf(9)) {
		data := make([]byte, id.DataBytes(f.Has(i)))
		if err := f.Read(i, data); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("block %d: %v", i, err)
			}
			return i
		}
		if !bytes.Equal(data, blockOf(i)) {
			t.Fatalf("block %d has other contents than were written", i)
		}
	}
	return f.Match(tokensOf(9))
}

func TestAFileHasTheBlocksThatWereWritten(t *testing.T) {
	d := newDir(t)
	write(t, d, "chat", 3)
	write(t, d, "chat", 5) // two more
	if n := valid(t, d, "chat", guide); n != 5 {
		t.Errorf("%d blocks are valid, want 5", n)
	}
	f := openFile(t, d, "chat", guide)
	other := tokensOf(5)
	other[13] = 99
	if got := f.Match(other); got != 3 {
		t.Errorf("%d blocks match tokens that differ in the fourth, want 3", got)
	}
	if got := f.Match(tokensOf(2)[:7]); got != 1 {
		t.Errorf("%d blocks match 7 tokens, want 1", got)
	}
	if err := errors.Join(f.Truncate(3), f.Append(other[12:16], groupsOf(8), blockOf(8))); err != nil {
		t.Fatal(err)
	}
	if got := openFile(t, d, "chat", guide).Match(other); got != 4 {
		t.Errorf("%d blocks match after the fourth was replaced, want 4", got)
	}
	info, err := os.Stat(filepath.Join(d.path, "chat.kv"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if info, err = os.Stat(d.path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	s, err := d.Stored("chat")
	if err != nil || s.Model != "guide" || s.Key != guide.Hash() || s.Positions != 16 || s.Bytes != f.Bytes() {
		t.Errorf("it is described as %+v, %v", s, err)
	}
}

// Whatever byte of a file is changed, and wherever it is cut, no block is returned that was not written
// there, and what is before the damage stays.
func TestADamagedFileIsNotTrusted(t *testing.T) {
	d := newDir(t)
	write(t, d, "chat", 3)
	path := filepath.Join(d.path, "chat.kv")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := openFile(t, d, "chat", guide).ends
	put := func(data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := func(at int64) (n int) { // records that end there, or before
		for n < len(ends) && ends[n] <= at {
			n++
		}
		return n
	}
	for at := 0; at < len(whole); at += 7 {
		data := slices.Clone(whole)
		data[at] ^= 0x10
		put(data)
		want := 0
		if at >= headerSize {
			want = before(int64(at))
		}
		if n := valid(t, d, "chat", guide); n != want {
			t.Fatalf("byte %d is wrong: %d blocks are valid, want %d", at, n, want)
		}
		put(whole[:at])
		if n, want := valid(t, d, "chat", guide), before(int64(at)); n != want {
			t.Fatalf("cut after byte %d: %d blocks are valid, want %d", at, n, want)
		}
	}
	swapped := slices.Concat(whole[:headerSize], whole[ends[0]:ends[1]], whole[headerSize:ends[0]])
	put(swapped)
	if n := valid(t, d, "chat", guide); n != 0 {
		t.Errorf("%d blocks are valid where two were swapped", n)
	}
	huge := slices.Clone(whole)
	binary.LittleEndian.PutUint32(huge[len(magic)+40:], 1<<31-1)
	put(huge)
	if n := valid(t, d, "chat", guide); n != 0 {
		t.Errorf("%d blocks are valid where the header names a huge block", n)
	}
	if _, err := d.List(); err != nil {
		t.Error(err)
	}
	put(whole[:len(whole)-1])
	write(t, d, "chat", 3)
	if n := valid(t, d, "chat", guide); n != 3 {
		t.Errorf("%d blocks are valid after the last was written again, want 3", n)
	}
}

// A chat goes on from recurrent state alone.
func TestPositionsAreCountedUpToTheLastRecurrentState(t *testing.T) {
	d := newDir(t)
	id := guide
	id.State = true
	if err := d.Allow("chat"); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, d, "chat", id)
	for i, want := range []int{0, 8, 8, 16, 16} { // odd records have the second group
		if err := f.Append(tokensOf(9)[4*i:4*i+4], groupsOf(i), blockOf(i)); err != nil {
			t.Fatal(err)
		}
		if s, err := d.Stored("chat"); err != nil || s.Positions != want {
			t.Errorf("%d positions with %d records, want %d; %v", s.Positions, i+1, want, err)
		}
	}
}

func TestAForeignFileIsNotUsed(t *testing.T) {
	for name, other := range map[string]Identity{
		"another model or device": {"guide", "guide on a gpu", []int{300, 30}, false, 4},
		"another cache group":     {"guide", guide.Key, []int{300}, false, 4},
		"blocks of another size":  {"guide", guide.Key, []int{303, 30}, false, 4},
		"recurrent state":         {"guide", guide.Key, []int{300, 30}, true, 4},
		"other positions":         {"guide", guide.Key, []int{300, 30}, false, 8},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			write(t, d, "chat", 2)
			f := openFile(t, d, "chat", other)
			if f.Match(tokensOf(2)) != 0 || f.Discarded() == "" {
				t.Errorf("%d blocks match, discarded because %q", f.Match(tokensOf(2)), f.Discarded())
			}
			if err := f.Append(tokensOf(4)[:other.Positions], 1, make([]byte, other.BlockBytes[0])); err != nil {
				t.Fatal(err)
			}
			if again := openFile(t, d, "chat", other); again.Blocks() != 1 || again.Discarded() != "" {
				t.Errorf("%d blocks after it was replaced, discarded because %q", again.Blocks(), again.Discarded())
			}
		})
	}
}

func TestAFileThatWasDeletedIsNotWrittenAnew(t *testing.T) {
	d := newDir(t)
	write(t, d, "chat", 1)
	f := openFile(t, d, "chat", guide)
	if err := d.Remove("chat"); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(tokensOf(2)[4:], groupsOf(1), blockOf(1)); err != nil {
		t.Error(err)
	}
	if _, err := d.Open("chat", guide); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened with %v", err)
	}
	if list, err := d.List(); len(list) > 0 || err != nil || d.Remove("chat") != nil {
		t.Errorf("there are %v, %v", list, err)
	}
}

func TestNamesLeadNowhereElse(t *testing.T) {
	d := newDir(t)
	for _, name := range []string{"", "..", "../x", "a/b", "a.b", "A", strings.Repeat("a", 65), "a\x00b"} {
		_, err := d.Open(name, guide)
		if err == nil || d.Allow(name) == nil || d.Remove(name) == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("x"), 0o600), os.Symlink(secret, filepath.Join(d.path, "link.kv"))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open("link", guide); err == nil {
		t.Error("a symbolic link is followed")
	}
	if err := os.Mkdir(filepath.Join(d.path, "folder.kv"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open("folder", guide); err == nil {
		t.Error("a folder is opened")
	}
}

func TestTheLeastRecentlyUsedFilesAreEvicted(t *testing.T) {
	d := newDir(t)
	now := time.Now()
	for i, name := range []string{"old", "new", "middle"} {
		write(t, d, name, 2)
		at := now.Add([]time.Duration{-3, -1, -2}[i] * time.Hour)
		if err := os.Chtimes(filepath.Join(d.path, name+".kv"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (names []string) {
		list, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			names = append(names, s.Name)
		}
		return names
	}
	total, err := d.Size()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Evict(total); err != nil || len(names()) != 3 {
		t.Errorf("%v are left at the limit, %v", names(), err)
	}
	if err := openFile(t, d, "old", guide).Touch(); err != nil {
		t.Fatal(err)
	}
	if err := d.Evict(total - 1); err != nil || !slices.Equal(names(), []string{"new", "old"}) {
		t.Errorf("%v are left below the limit, %v", names(), err)
	}
	if err := d.RemoveIf(func(s Stored) bool { return s.Name == "old" && s.Model == "guide" }); err != nil || !slices.Equal(names(), []string{"new"}) {
		t.Errorf("%v are left, %v", names(), err)
	}
	if err := d.Evict(0); err != nil || len(names()) != 0 {
		t.Errorf("%v are left with a limit of 0, %v", names(), err)
	}
}
