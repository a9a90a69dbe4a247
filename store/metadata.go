package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Metadata is what a conversation is apart from its messages. A field is the column of conversations
// that its tag db names; one that has a name in JSON is also in exports and in what open pages
// are sent. A new column is a migration and a field here: whatever reads, writes, copies,
// exports or imports conversations then has it.
type Metadata struct {
	ID    string `db:"id" json:"-"` // of a new conversation: empty, and a random one is made
	Title string `db:"title" json:"title"`
	Opening
	System    string          `db:"system" max:"text" json:"-"` // system prompt of the next question
	Settings  json.RawMessage `db:"settings" json:"-"`          // sampling settings of the next question; null if never set
	Origin    string          `db:"origin" json:"-"`            // id of the conversation that this one was forked from; empty: none
	Placement `json:"-"`
}

// Opening is what a person can choose for a conversation with its first question.
type Opening struct {
	Model string `db:"model" json:"model,omitempty"` // that answers the next question; empty: whichever is loaded
	Raw   bool   `db:"raw" json:"raw,omitempty"`     // the texts go to the model as they are
}

// Placement is where lists show a conversation. A copy of the conversation has one of its own.
type Placement struct {
	Folder   string `db:"folder"` // empty: none
	Pinned   bool   `db:"pinned"`
	Archived bool   `db:"archived"`
}

// Fork returns what a copy of the conversation begins with.
func (m Metadata) Fork() Metadata {
	m.ID, m.Origin, m.Placement = "", m.ID, Placement{}
	return m
}

// metadata are the columns of Metadata.
var metadata = metadataColumns()

type columns struct {
	list  []reflect.StructField
	names string // of a statement that reads or adds rows
	set   string // of a statement that changes rows
	marks string // for the values
}

func metadataColumns() (c columns) {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Metadata]()) {
		if name := f.Tag.Get("db"); name != "" {
			c.list, names = append(c.list, f), append(names, name)
		}
	}
	c.names, c.set = strings.Join(names, ", "), strings.Join(names, " = ?, ")+" = ?"
	c.marks = strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	return c
}

// pointers returns the places into which a row of the columns is read.
func (m *Metadata) pointers() (list []any) {
	for _, f := range metadata.list {
		p := reflect.ValueOf(m).Elem().FieldByIndex(f.Index).Addr().Interface()
		if text, isJSON := p.(*json.RawMessage); isJSON {
			p = (*[]byte)(text)
		}
		list = append(list, p)
	}
	return list
}

// values returns the values of the columns.
func (m *Metadata) values() (list []any) {
	for _, f := range metadata.list {
		value := reflect.ValueOf(m).Elem().FieldByIndex(f.Index).Interface()
		if text, isJSON := value.(json.RawMessage); isJSON {
			value = string(text)
		}
		list = append(list, value)
	}
	return list
}

// differences returns the columns in which m differs from before, but the id, as the SET of a
// statement and its values.
func (m *Metadata) differences(before *Metadata) (set string, values []any) {
	var list []string
	old := before.values()
	for i, value := range m.values() {
		if name := metadata.list[i].Tag.Get("db"); name != "id" && value != old[i] {
			list, values = append(list, name+" = ?"), append(values, value)
		}
	}
	return strings.Join(list, ", "), values
}

var conversationID = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// prepare gives the conversation an id if it has none, and returns an *InvalidError if it cannot
// be stored.
func (m *Metadata) prepare() error {
	if m.ID == "" {
		m.ID = NewID()
	}
	if !conversationID.MatchString(m.ID) {
		return &InvalidError{"id", fmt.Sprintf("is %q, but must be 1 to 64 of a-z, 0-9, _ and -", m.ID)}
	}
	var errs []error
	for i, p := range m.pointers() {
		name, max := metadata.list[i].Tag.Get("db"), maxName
		if metadata.list[i].Tag.Get("max") == "text" {
			max = MaxText
		}
		switch p := p.(type) {
		case *string:
			errs = append(errs, checkText(name, *p, max))
		case *[]byte:
			text, err := jsonText(name, *p)
			*p, errs = []byte(text), append(errs, err)
		}
	}
	return errors.Join(errs...)
}
