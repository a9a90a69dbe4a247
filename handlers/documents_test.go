package handlers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/document"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fixtures"
)

// docx returns a document with a paragraph.
func docx(t *testing.T, text string) string {
	t.Helper()
	return string(fixtures.Zip(t, "word/document.xml", `<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>`+text+`</w:t></w:r></w:p></w:body></w:document>`))
}

func TestDocuments_AreReadForMessages(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine, func(c *handlers.Config) { c.Documents = document.NewReader("/proc/self/exe") })
	got := handlerstest.Post(t, server, "/documents", docx(t, "Moss grows."), "Origin", server.URL, "Accept", "application/json")
	var d document.Document
	if err := json.Unmarshal([]byte(got.Body), &d); err != nil || got.Status != http.StatusOK || d != (document.Document{Kind: document.DOCX, Text: "Moss grows."}) {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
	got = handlerstest.Post(t, server, "/documents", docx(t, " "), "Origin", server.URL, "Accept", "application/json")
	if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "the file has no text") {
		t.Errorf("a document without text: got %d: %s", got.Status, got.Body)
	}

	// The form of a page without scripts.
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if err := form.WriteField("text", "What is it?"); err != nil {
		t.Fatal(err)
	}
	f, err := form.CreateFormFile("files", "moss.docx")
	if err == nil {
		_, err = io.WriteString(f, docx(t, "Moss grows."))
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	handlerstest.Post(t, server, "/", body.String(), "Origin", server.URL, "Content-Type", form.FormDataContentType())
	a := engine.Next(t)
	if got, want := a.Request.Messages[0].Content, "What is it?\n\nFile moss.docx:\n```\nMoss grows.\n```"; got != want {
		t.Errorf("the model gets %q, want %q", got, want)
	}
	a.Finish()
}

func TestDocuments_AreRefusedWithoutAReader(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	got := handlerstest.Post(t, server, "/documents", docx(t, "Moss"), "Origin", server.URL, "Accept", "application/json")
	if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "does not read PDF and DOCX files") {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
}
