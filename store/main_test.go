package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or plays the process that a test kills.
func TestMain(m *testing.M) {
	if play := helpers[os.Getenv("STORE_HELPER")]; play != nil {
		if err := play(os.Getenv("STORE_PATH")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var helpers = map[string]func(path string) error{
	"chat":    playChats,
	"migrate": playMigration,
	"hold":    playHolder,
	"import":  playImport,
}

// torture reports whether the full counts are asked for.

// counts returns how often to do something, here and under torture.
func counts(ordinary, full int) int {
	if fixtures.Torture() {
		return full
	}
	return ordinary
}

const me, you = "me", "you"

var ctx = context.Background()

// testOptions have no ballast, which would be written anew for each test.
func testOptions(t *testing.T) Options {
	return Options{Path: filepath.Join(privateDir(t), "chats.db"), Ballast: -1}
}

// privateDir is a temporary folder that the store accepts under any umask.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustOpen(t *testing.T, opt Options) *Store {
	t.Helper()
	s, err := Open(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newStore(t *testing.T) *Store {
	t.Helper()
	return mustOpen(t, testOptions(t))
}

// must returns the value of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start begins a conversation with a question and an answer that runs.
func start(t *testing.T, s *Store, id, question string) (q, a Message) {
	t.Helper()
	_, q, a, err := s.Start(ctx, me, Metadata{ID: id, Title: "About " + id},
		NewMessage{Role: RoleUser, Text: question}, NewAnswer{Answer: of("guide")})
	if err != nil {
		t.Fatal(err)
	}
	return q, a
}

// of returns an answer of a model.
func of(model string) Answer {
	return Answer{Answer: record.Answer{Receipt: record.Receipt{Model: model}}}
}

// talk begins a conversation whose answer has ended.
func talk(t *testing.T, s *Store, id, question, answer string) (q, a Message) {
	t.Helper()
	q, a = start(t, s, id, question)
	a = must[Message](t)(s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Text: answer, Answer: receipt()}))
	return q, a
}

// receipt is an answer with every field set.
func receipt() Answer {
	end := int32(2)
	params := sample.DefaultParams()
	params.LogitBias, params.Samplers, params.Seed = map[int32]float64{5: -100}, []string{"top_k", "top_p"}, 1<<53-1
	return Answer{
		Answer: record.Answer{
			End:     record.End{Reason: record.FinishStop, ContextFull: true, StopString: "\n\n", EndToken: &end, EndProb: 0.1 + 0.2},
			Usage:   record.Usage{PromptTokens: 12, CachedTokens: 3, CompletionTokens: 2, ReasoningTokens: 1},
			Timings: record.Timings{Queue: 1 * time.Millisecond, Load: 2 * time.Second, Prefill: 3 * time.Microsecond, Decode: 4 * time.Hour, First: 5 * time.Minute},
			Lookup:  record.Lookup{Drafted: 9, Accepted: 7},
			Receipt: record.Receipt{Model: "guide", ModelHash: "aa", TemplateHash: "bb", Params: params, Engine: "1.2", Device: "cpu", Path: "avx512", CacheType: "f16"},
		},
		Settings: json.RawMessage(`{"temperature":0.7}`),
		System:   "Be brief.",
		Seed:     1<<53 - 1,
		Context:  4096,
		Prefix:   3,
		Edited:   true,
		Error:    json.RawMessage(`null`),
		Tokens:   []int32{0, -1, 1 << 30},
	}
}

// dump writes every row of every table of our own, in a fixed order: what a database
// says, whatever its pages look like.
func dump(t *testing.T, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite3", dsn(path, "_query_only", "on"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out strings.Builder
	tables := queryAll(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%search%' AND name <> 'sqlite_sequence' ORDER BY name`)
	for _, table := range append(tables, "sqlite_sequence") {
		columns := queryAll(t, db, `SELECT 'quote("' || name || '")' FROM pragma_table_info('`+table+`') ORDER BY cid`)
		for _, row := range queryAll(t, db, `SELECT `+strings.Join(columns, ` || ',' || `)+` AS r FROM `+table+` ORDER BY r`) {
			fmt.Fprintf(&out, "%s: %s\n", table, row)
		}
	}
	fmt.Fprintln(&out, queryAll(t, db, `SELECT user_version FROM pragma_user_version`), queryAll(t, db, `SELECT application_id FROM pragma_application_id`),
		queryAll(t, db, `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY sql`))
	return out.String()
}

// queryAll returns the first column of all rows.
func queryAll(t *testing.T, db interface {
	Query(string, ...any) (*sql.Rows, error)
}, query string, args ...any) (list []string) {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		list = append(list, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}

// hashes returns the SHA-256 of every file in a folder but the lock.
func hashes(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasSuffix(e.Name(), ".lock") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		sums[e.Name()] = hex.EncodeToString(sum[:])
	}
	return sums
}

// listed are messages that come one by one.
func listed(list []Message) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func importList(s *Store, owner string, n Metadata, list []Message, leaf int64) (Conversation, error) {
	return s.Import(ctx, owner, listed(list), func() (Metadata, int64) { return n, leaf })
}

// tree returns a conversation with all its messages.
func tree(s *Store, ctx context.Context, owner, conversation string) (c Conversation, list []Message, err error) {
	if c, err = s.Conversation(ctx, owner, conversation); err != nil {
		return c, nil, err
	}
	for part := []Message{{}}; len(part) > 0; list = append(list, part...) {
		after := int64(0)
		if len(list) > 0 {
			after = list[len(list)-1].ID
		}
		if part, err = s.Messages(ctx, owner, conversation, after); err != nil {
			return c, nil, err
		}
	}
	return c, list, nil
}
