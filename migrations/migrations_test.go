package migrations

import (
	"strings"
	"testing"
	"testing/fstest"
)

// merged lists the hashes of all migrations (sha256sum *.sql), which existing databases may
// have recorded. Each new file adds a line; existing lines never change.
var merged = []string{
	"00d45777e8de24e59ee5bf8086fcd6764d67a6a65f114b4da1329ea335d6bc6c",
	"90506fb442def5aaa075f31625c5be30e0abbc7c9c4d397f4455d30824d055cb",
	"2cee0f41e9f532fc27c22205e1a7eb0abd1fca2d9aadf7b9370f90d083fe2403",
	"4d33abb4fec46abb67d6a13f2b7814a50089d87d892cfdb831a9f8aa4bff414e",
	"c2fdea658e365b1fa7e9a6ef19281f6914dc7358347fdedb6620ca2908e33777",
	"7e2dfc94dc93d5d6c0dc78b6fce99f98fef3112c3449fb02f61ea49b561bf827",
	"8af1a6cd526df2f4ebdfd092668b6a0d767dcb3a6154bf26c1a25443034d7585",
	"e8a86727afd6836faa8a59b0bce30c62be9786cecd34628e888eb27ed1aaad19",
	"4d876c9d4521892f1135eb89b2950c2057433b0b533fa66775007d6b17efbd72",
	"2550203e1baee205efbd395b8647c739f4dbd73ed3a9b068a6f6276889263a73",
	"d4fc496470ccb336f784507714811ed14e18ca8d7dae081a5f51d19009547116",
	"87acdf796f8572fa9e25a61fc369c73d642b6f1ddc61d7b82261c8df311de820",
	"c04424825257e19a6b1bed6d02f7968e0473605b8d42701dc05876ca0f3292fe",
	"ab37f0f14ecb3cb0b25ab1b5a3c9b8771f80b3ddb13a286fc20b2593ebd19508",
	"0b88f0fe5b90a06a7ab80218178d541e10a8d50a05d011ed1451841821c4e5bf",
	"853770246a7c655e806c4eb73d5ff6ac3bd02b7c1d261b43cf5ff9f46cf3110b",
	"0e45185ac9825b418c32333d8def74b0e62a3dc04339958f432e0bf7381cbd2c",
	"d2b067b58986c238e0017ec3e99b2760472b0660264f4af806d12139daa54da4",
}

func TestAll_MergedFilesAreUnchanged(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(merged) {
		t.Fatalf("got %d migrations, want %d", len(all), len(merged))
	}
	for i, m := range all {
		if m.Version != i+1 {
			t.Errorf("migration %q has version %d, want %d", m.Name, m.Version, i+1)
		}
		if m.Hash != merged[i] {
			t.Errorf("migration %q has hash %s, want %s", m.Name, m.Hash, merged[i])
		}
	}
}

func TestLoad_RejectsGapsAndMalformedNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		wrong string // part of the error; empty: none
	}{
		{"numbers that rise from 0001", []string{"0001_a.sql", "0002_b_2.sql"}, ""},
		{"a gap", []string{"0001_a.sql", "0003_b.sql"}, `"0003_b.sql"`},
		{"a start other than 0001", []string{"0002_a.sql"}, `"0002_a.sql"`},
		{"a number used twice", []string{"0001_a.sql", "0001_b.sql"}, `"0001_b.sql"`},
		{"a name without a number", []string{"first.sql"}, `"first.sql"`},
		{"a number of three digits", []string{"001_a.sql"}, `"001_a.sql"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fstest.MapFS{}
			for _, f := range c.files {
				dir[f] = &fstest.MapFile{Data: []byte("SELECT '" + f + "';")}
			}
			all, err := load(dir)
			if c.wrong == "" {
				if err != nil {
					t.Fatal(err)
				}
				if len(all) != len(c.files) {
					t.Fatalf("loaded %d of %d files", len(all), len(c.files))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Fatalf("got error %v, want one with %s", err, c.wrong)
			}
		})
	}
}
