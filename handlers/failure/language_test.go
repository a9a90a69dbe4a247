package failure

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"m40-llm/infer/fault"
	"m40-llm/web/lang"
)

func TestAnErrorIsInThePagesLanguageWithItsValues(t *testing.T) {
	german := lang.With(t.Context(), lang.German)
	for _, c := range []struct {
		name        string
		err         error
		title, text string
	}{
		{"a message with values", fault.Errorf(fault.CodeQueueFull, "the queue is full: %d requests are running or waiting; try again later", 7),
			"Die Warteschlange ist voll", "Die Warteschlange ist voll: 7 Anfragen laufen oder warten; versuch es später noch einmal."},
		{"a message in a message", fault.Errorf(fault.CodeMemory, "cannot load model %q: %s", "a b", "the model needs 9 GB (weights 8 GB, KV cache for 4096 positions 500 MB, scratch and reserve 500 MB), 3 GB are free; use a smaller model"),
			"Zu wenig Speicher", `Das Modell "a b" lässt sich nicht laden: das Modell braucht 9 GB (Gewichte 8 GB, KV-Cache für 4096 Positionen 500 MB, Puffer und Reserve 500 MB), frei sind 3 GB; nimm ein kleineres Modell.`},
		{"a code with a text of its own", fault.New(fault.CodeChatNotFound, "there is no such chat on this server"),
			"Diesen Chat gibt es nicht mehr", "Er wurde gelöscht, oder es war ein temporärer Chat: Den gibt es nur, bis der Server beendet wird."},
		{"an error with a title of its own", &fault.Error{Code: fault.CodeDenied, Title: "Visitors cannot do this", Message: "only the owner of this server can do this"},
			"Besucher können das nicht", "Das kann nur der Besitzer dieses Servers."},
		{"a prompt that is too long", &fault.Error{Code: fault.CodeContext, PromptTokens: 9031, ContextLength: 8192, Largest: fault.PartPictures, LargestTokens: 8800},
			"Das passt nicht in den Kontext", "Es wurde nichts gekürzt. Die Bilder haben 8.800 Tokens, 8.192 passen insgesamt. Sende weniger, oder zeige sie mit wenigen Details."},
		{"a text for the log only", &fault.Error{Code: fault.CodeDevice, Message: "secret"},
			"Das Gerät ist ausgefallen", "Die Engine ist bei dieser Anfrage fehlgeschlagen; mehr steht im Log des Servers."},
		{"a failure inside", errors.New("secret"), "Die Antwort ist fehlgeschlagen", "Interner Fehler; mehr steht im Log des Servers."},
		{"an address that leads nowhere", echo.ErrNotFound, "Nicht gefunden", "Unter dieser Adresse gibt es nichts."},
		{"a body that is too large", &http.MaxBytesError{Limit: 7}, "Zu viele Daten", "Die gesendeten Daten sind größer als die hier erlaubten 7 Bytes."},
		{"a message without a German text", fault.Errorf(fault.CodeModelFile, "cannot use model %q: %s", "a", "tensor x ends early"),
			"The model file cannot be used", `Cannot use model "a": tensor x ends early.`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, described := For(german, c.err), Describe(c.err)
			if f.Title != c.title || f.Text != c.text {
				t.Errorf("got %q, %q", f.Title, f.Text)
			}
			if f.Code != described.Code || f.Status != described.Status || f.RetryAfter != described.RetryAfter {
				t.Errorf("in German: %+v", f)
			}
			if english := For(t.Context(), c.err); english != described {
				t.Errorf("in English: %+v, want %+v", english, described)
			}
		})
	}
}

func TestEveryTitleAndTextOfTheTableIsGermanOnAGermanPage(t *testing.T) {
	german := lang.With(t.Context(), lang.German)
	check := func(text string) {
		if _, found := lang.FindMessage(german, text); text != "" && !found {
			t.Errorf("%q has no German text", text)
		}
	}
	for code, r := range table {
		check(Describe(fault.New(code, "it is empty")).Title)
		check(r.text)
	}
}
