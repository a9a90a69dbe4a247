package web

// Help is what the page of a document shows.
type Help struct {
	Title    string
	HTML     string // trusted
	Headings []HelpLink
	Inner    bool // the document is not the table of contents
}

// HelpLink leads to a part of a document.
type HelpLink struct{ Address, Text string }
