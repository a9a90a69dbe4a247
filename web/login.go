package web

// LoginForm is the page that asks for what lets a device in.
type LoginForm struct {
	Problem string // with what was sent before
	Link    string // secret of an invitation that the address brought; empty: none
	Plain   bool   // the connection is not encrypted, and leaves the machine
}
