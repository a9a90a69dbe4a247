package lang

import (
	"strings"
	"testing"
)

func TestMessagesAreTranslatedAsAWholeOrNotAtAll(t *testing.T) {
	list := newMessages(map[string]string{
		"there are %d chats":                 "es gibt %d Chats",
		"the model %q is broken: %s":         "das Modell %q ist kaputt: %s",
		"it is empty":                        "es ist leer",
		"%s has %s: at most %s are read":     "%[2]s in %[1]s, gelesen werden %[3]s",
		"the file “%s” %s":                   "die Datei „%s“ %s",
		"has no text":                        "hat keinen Text",
		"cannot %s while an answer is there": "das geht nicht, solange eine Antwort da ist",
		"%d %% of %s":                        "%d %% von %s",
		"wait for %s":                        "warte %s",
		"%s hours":                           "%s Stunden",
	})
	for _, c := range []struct{ name, english, want string }{
		{"a value stays", "there are 12 chats", "es gibt 12 Chats"},
		{"values have another order", "a.pdf has 9 MB: at most 8 MB are read", "9 MB in a.pdf, gelesen werden 8 MB"},
		{"a message is in another one", `the model "a: b; c" is broken: it is empty`, `das Modell "a: b; c" ist kaputt: es ist leer`},
		{"clauses are joined", "it is empty; there are 3 chats", "es ist leer; es gibt 3 Chats"},
		{"clauses are inside", `the model "a" is broken: it is empty; there are 3 chats`, `das Modell "a" ist kaputt: es ist leer; es gibt 3 Chats`},
		{"a value in quotation marks is no message", "the file “it is empty” has no text", "die Datei „it is empty“ hat keinen Text"},
		{"German leaves a value out", "cannot send this again while an answer is there", "das geht nicht, solange eine Antwort da ist"},
		{"a percent sign is one", "30 % of GPU", "30 % von GPU"},
		{"a number with a unit is a message", "wait for 3 hours", "warte 3 Stunden"},
		{"names are separated by commas", `the model "a" is broken: gpu-box, llama-3.2`, `das Modell "a" ist kaputt: gpu-box, llama-3.2`},
		{"the message inside is unknown", `the model "a" is broken: tensor x ends early`, ""},
		{"a clause is unknown", "it is empty; nobody knows why", ""},
		{"no message is like it", "there are no chats", ""},
		{"the value is of another kind", "there are many chats", ""},
		{"messages are nested too deep", strings.Repeat(`the model "a" is broken: `, maxInside) + "it is empty", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, known := translate(list, c.english, maxInside); got != c.want || known != (c.want != "") {
				t.Errorf("got %q, %v", got, known)
			}
		})
	}
}

func TestAMessageIsEnglishUnlessThePageIsGerman(t *testing.T) {
	const english = "the queue is full: 4 requests are running or waiting; try again later"
	german := With(t.Context(), German)
	long := "the title is " + strings.Repeat("very ", maxMessage) + "long"
	for _, c := range []struct{ got, want string }{
		{Message(t.Context(), english), english},
		{Message(german, english), "die Warteschlange ist voll: 4 Anfragen laufen oder warten; versuch es später noch einmal"},
		{Message(german, "tensor x ends early"), "tensor x ends early"},
		{Message(german, long), long},
		{Message(german, ""), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %.200q, want %.200q", c.got, c.want)
		}
	}
}
