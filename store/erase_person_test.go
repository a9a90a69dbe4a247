package store

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// nobodys are the tables that have no rows of people.
var nobodys = map[string]bool{"schema_migrations": true}

// tablesOfPeople returns, for each table of the schema with rows of people, the condition under which
// a row is that of the person ?1: by a column owner or person, or by a foreign key to such a table. So
// a table that is added later is in it; one of which the schema does not say whose it is fails the test.
func tablesOfPeople(t *testing.T, s *Store) map[string]string {
	t.Helper()
	names := queryStrings(t, s, `
		SELECT name FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE '%\_search\_%' ESCAPE '\'`)
	conditions := map[string]string{"people": "id = ?1"}
	for range names { // as many rounds as the longest chain of foreign keys can have
		for _, name := range names {
			if conditions[name] != "" {
				continue
			}
			if column := queryStrings(t, s, `SELECT name FROM pragma_table_info(?1) WHERE name IN ('owner', 'person')`, name); len(column) == 1 {
				conditions[name] = column[0] + " = ?1"
				continue
			}
			for _, key := range queryStrings(t, s, `SELECT "from" || ' ' || "table" || ' ' || "to" FROM pragma_foreign_key_list(?1)`, name) {
				var from, table, to string
				if _, err := fmt.Sscan(key, &from, &table, &to); err != nil {
					t.Fatal(err)
				}
				if outer := conditions[table]; outer != "" {
					conditions[name] = fmt.Sprintf("%s IN (SELECT %s FROM %s WHERE %s)", from, to, table, outer)
				}
			}
		}
	}
	// Files belong to those whose messages have them.
	conditions["attachments"] = "id IN (SELECT attachment FROM message_attachments WHERE " + conditions["message_attachments"] + ")"
	for _, name := range names {
		if conditions[name] == "" && !nobodys[name] {
			t.Errorf("the schema does not say whose the rows of %s are: add a column owner, or the table to nobodys", name)
		}
	}
	return conditions
}

func queryStrings(t *testing.T, s *Store, query string, args ...any) (list []string) {
	t.Helper()
	rows, err := s.readers.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// valuesOf returns the texts and blobs in all rows of a person, and how many rows each table has.
func valuesOf(t *testing.T, s *Store, conditions map[string]string, person string) (values map[string]string, rows map[string]int) {
	t.Helper()
	values, rows = map[string]string{}, map[string]int{}
	for table, condition := range conditions {
		rows[table] = len(queryStrings(t, s, "SELECT 1 FROM "+table+" WHERE "+condition, person))
		for _, column := range queryStrings(t, s, `SELECT name FROM pragma_table_info(?1) WHERE type IN ('TEXT', 'BLOB')`, table) {
			for _, value := range queryStrings(t, s, fmt.Sprintf("SELECT coalesce(%s, '') FROM %s WHERE %s", column, table, condition), person) {
				if len(value) >= 8 {
					values[value] = table + "." + column
				}
			}
		}
	}
	return values, rows
}

// belongings are rows of a person in every table; word is in each of their texts.
func belongings(t *testing.T, s *Store, word string) (p Person) {
	t.Helper()
	p = addPerson(t, s, "name "+word)
	for i, state := range []State{Done, Running} {
		id := fmt.Sprint("chat-", i, "-", word)
		picture := []byte("picture " + word)
		_, q, a, err := s.Start(ctx, p.ID, Metadata{ID: id, Title: "title " + word, System: "system " + word, Placement: Placement{Folder: "folder " + word}},
			NewMessage{Role: RoleUser, Text: "question " + word, Pictures: []Picture{{Hash: PictureHash(picture), Type: "image/png", Width: 1, Height: 1, Bytes: len(picture), Data: picture}}}, NewAnswer{Answer: Answer{System: "system " + word}})
		mustDo(t, err)
		must[[]int64](t)(s.SaveProgress(ctx, []Progress{{p.ID, id, a.ID, strings.Repeat("progress "+word+" ", 500), "reasoning " + word, []int32{1, 2, 3}, []TokenRows{{Rows: []TokenRow{{Row: []byte("row " + word)}}}}}}))
		if state == Done {
			must[Message](t)(s.FinishAnswer(ctx, p.ID, id, a.ID, Finish{State: Done, Text: strings.Repeat("answer "+word+" ", 500), Reasoning: "reasoning " + word, Answer: Answer{System: "system " + word, Tokens: make([]int32, 100)}}))
		}
		must[Share](t)(s.AddShare(ctx, p.ID, Share{Conversation: id, First: q.ID}, hashOf("share "+id)))
	}
	must[Preset](t)(s.CreatePreset(ctx, p.ID, Preset{Name: "preset " + word, System: "preset system " + word, Settings: []byte(`{"stop":["stop ` + word + `"]}`)}))
	mustDo(t, s.SetSetting(ctx, p.ID, "name_"+word, []byte(`"value `+word+`"`)))
	must[Device](t)(s.AddDevice(ctx, Device{Person: p.ID, Label: "device " + word, KeyHash: must2(hashOf("server " + word))}, hashOf("device "+word)))
	mustDo(t, s.SetPassphrase(ctx, p.ID, "hash "+word))
	must[Key](t)(s.AddKey(ctx, p.ID, "key "+word, hashOf("key "+word)))
	mustDo(t, s.AddVote(ctx, p.ID, Vote{First: "first " + word, Second: "second " + word, Result: VoteTie}))
	return p
}

func must2(hash TokenHash) []byte { return hash[:] }

// Whatever tables there are, an erased person has a row in none of them, and no byte of theirs is in
// the files; what others have stays as it was.
func TestErasePerson_LeavesNothingInAnyTableOfTheSchemaNorInTheFiles(t *testing.T) {
	s := newStore(t)
	conditions := tablesOfPeople(t, s)
	ben := belongings(t, s, "vexedfjordnymph")
	anna := belongings(t, s, "xylophonequartz")
	carl := belongings(t, s, "quizzicalphlox")
	mine, rows := valuesOf(t, s, conditions, anna.ID)
	for table := range conditions {
		if rows[table] == 0 {
			t.Errorf("the test stores nothing in %s: add it to belongings", table)
		}
	}
	others := map[string]map[string]int{}
	for _, p := range []Person{ben, carl} {
		values, rows := valuesOf(t, s, conditions, p.ID)
		for value := range values {
			delete(mine, value)
		}
		others[p.ID] = rows
	}
	mine["lophonequartz"] = "the index" // it leaves out what a word shares with the one before
	there := func() (found []string) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			data := string(must[[]byte](t)(os.ReadFile(s.opt.Path + suffix)))
			for value, where := range mine {
				if strings.Contains(data, value[:min(len(value), 400)]) { // a longer one is in several pages
					found = append(found, where+" in "+suffix)
				}
			}
		}
		return found
	}
	if n := len(there()); n < len(mine) {
		t.Fatalf("of %d values %d are in the files to begin with", len(mine), n)
	}
	mustDo(t, s.ErasePerson(ctx, anna.ID))
	left, rows := valuesOf(t, s, conditions, anna.ID)
	for table, n := range rows {
		if n > 0 {
			t.Errorf("%s has %d rows of a person who was erased: %v", table, n, left)
		}
	}
	for _, where := range there() {
		t.Errorf("a value of %s is still in the file", where)
	}
	for _, p := range []Person{ben, carl} {
		if _, rows := valuesOf(t, s, conditions, p.ID); fmt.Sprint(rows) != fmt.Sprint(others[p.ID]) {
			t.Errorf("%s has %v, and had %v", p.Name, rows, others[p.ID])
		}
	}
	if detail, err := check(ctx, s.readers); detail != "" || err != nil {
		t.Errorf("the database is damaged: %s %v", detail, err)
	}
	t.Logf("%d tables of people, %d values of the erased one", len(conditions), len(mine))
}
