package web

import "strconv"

// People is the page of the people of a server, for its owner.
type People struct {
	List    []Account
	Problem string // with the name that was sent
	Name    string // that was sent
	Alone   bool   // other machines do not reach the server
}

// Account is the page of one person: how they come in, and what they may.
type Account struct {
	ID, Name string
	IsOwner  bool // of the server
	Manages  bool // who looks at it is the owner of the server
	Own      bool // who looks at it is this person
	Answers  int  // at once; 0: no limit of their own
	Devices  []Credential
	Keys     []Credential
	Problem  string

	Invitation *Invitation // just made
	NewKey     string      // just made; shown once
	Alone      bool        // other machines do not reach the server
	Plain      bool        // they reach it without encryption
}

// Credential is a device or an API key.
type Credential struct {
	ID    int64
	Name  string
	Used  string // when, in words
	Since string
}

// Invitation lets one device in.
type Invitation struct {
	Code   string
	Links  []string // addresses that bring the device in, the best first
	QR     string   // path of the code of the first link, on a square of QRSize
	QRSize int
}

func (i Invitation) box() string {
	n := strconv.Itoa(i.QRSize)
	return "0 0 " + n + " " + n
}

// address is a page of the person, or where a form about them goes.
func (a Account) address(what string) string { return "/people/" + a.ID + what }

func (a Account) limit() string {
	if a.Answers == 0 {
		return ""
	}
	return strconv.Itoa(a.Answers)
}

// summary is a line about the person in a list.
func (a Account) summary() string {
	text := Counted(len(a.Devices), "device") + ", " + Counted(len(a.Keys), "API key")
	if len(a.Devices) > 0 {
		text += ", " + a.Devices[0].Used
	}
	return text
}
