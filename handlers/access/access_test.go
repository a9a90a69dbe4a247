package access

import (
	"context"
	"testing"

	"m40-llm/store"
)

func TestAuthorize(t *testing.T) {
	anna, nobody := Principal{Owner: "anna"}, Principal{}
	link := Principal{Share: &store.Share{Owner: "anna", Conversation: "1"}}
	writer := Principal{Share: link.Share, Writer: 7}
	both := Principal{Owner: "anna", Role: RoleOwner, Share: link.Share}
	visitor := Principal{Owner: "visitor-1", Role: RoleVisitor}
	visitors := Object{KindChat, "visitor-1", "3"}
	annas, bens := Object{KindChat, "anna", "1"}, Object{KindChat, "ben", "2"}
	for _, tc := range []struct {
		name   string
		who    Principal
		action Action
		what   Object
		want   bool
	}{
		{"a person changes a chat of their own", anna, ActionChange, annas, true},
		{"a person reads no chat of another", anna, ActionRead, bens, false},
		{"the owner of the server reads no chat of another", Local, ActionRead, annas, false},
		{"the owner of the server manages no chat of another", Local, ActionManage, annas, false},
		{"a person follows nothing, not even what is theirs", anna, ActionFollow, annas, false},
		{"a person uses a model", anna, ActionAsk, Object{Kind: KindModel}, true},
		{"a person changes no model", anna, ActionChange, Object{Kind: KindModel}, false},
		{"a person manages no model", anna, ActionManage, Object{Kind: KindModel}, false},
		{"the owner manages models", Local, ActionManage, Object{Kind: KindModel}, true},
		{"a person changes their own devices", anna, ActionChange, Object{Kind: KindPerson, Owner: "anna"}, true},
		{"a person changes no device of another", anna, ActionChange, Object{Kind: KindPerson, Owner: "ben"}, false},
		{"the owner changes the devices of a person", Local, ActionChange, Object{Kind: KindPerson, Owner: "anna"}, true},
		{"a person does not manage themselves", anna, ActionManage, Object{Kind: KindPerson, Owner: "anna"}, false},
		{"the owner manages people", Local, ActionManage, Object{Kind: KindPerson, Owner: "anna"}, true},
		{"a person changes their own passphrase", anna, ActionChange, Object{Kind: KindPassphrase, Owner: "anna"}, true},
		{"a person changes no passphrase of another", anna, ActionChange, Object{Kind: KindPassphrase, Owner: "ben"}, false},
		{"a person manages no passphrase", anna, ActionManage, Object{Kind: KindPassphrase, Owner: "anna"}, false},
		{"the owner changes no passphrase of another", Local, ActionChange, Object{Kind: KindPassphrase, Owner: "anna"}, false},
		{"the owner manages the passphrases of others", Local, ActionManage, Object{Kind: KindPassphrase, Owner: "anna"}, true},
		{"a person stops an answer of their own", anna, ActionChange, Object{Kind: KindAnswer, Owner: "anna"}, true},
		{"a person sees no answer of another", anna, ActionRead, Object{Kind: KindAnswer, Owner: "ben"}, false},
		{"a person stops no answer of another", anna, ActionChange, Object{Kind: KindAnswer, Owner: "ben"}, false},
		{"the owner stops the answer of a person", Local, ActionChange, Object{Kind: KindAnswer, Owner: "ben"}, true},
		{"a link stops no answer", link, ActionChange, Object{Kind: KindAnswer, Owner: "anna"}, false},
		{"nobody stops an answer", nobody, ActionChange, Object{Kind: KindAnswer}, false},
		{"a link follows its chat", link, ActionFollow, annas, true},
		{"a link follows no other chat", link, ActionFollow, Object{KindChat, "anna", "2"}, false},
		{"a link reads nothing else", link, ActionRead, annas, false},
		{"a link writes nothing", link, ActionWrite, annas, false},
		{"a writer writes in the chat of the link", writer, ActionWrite, annas, true},
		{"a writer writes in no other chat of its owner", writer, ActionWrite, Object{KindChat, "anna", "2"}, false},
		{"a writer writes in no chat of another", writer, ActionWrite, bens, false},
		{"a writer changes nothing", writer, ActionChange, annas, false},
		{"a writer asks nothing as the owner does", writer, ActionAsk, annas, false},
		{"a writer shares nothing", writer, ActionShare, annas, false},
		{"a writer uses no model", writer, ActionAsk, Object{Kind: KindModel}, false},
		{"who writes without a link writes nothing", Principal{Owner: "anna", Writer: 7}, ActionWrite, annas, false},
		{"a link uses no model", link, ActionAsk, Object{Kind: KindModel}, false},
		{"a link takes the rights of a person away", both, ActionManage, Object{Kind: KindModel}, false},
		{"a visitor reads a chat of their own", visitor, ActionRead, visitors, true},
		{"a visitor changes a chat of their own", visitor, ActionChange, visitors, true},
		{"a visitor asks in a chat of their own", visitor, ActionAsk, visitors, true},
		{"a visitor shares no chat", visitor, ActionShare, visitors, false},
		{"a visitor imports no chat", visitor, ActionImport, visitors, false},
		{"a person imports a chat", anna, ActionImport, Object{Kind: KindChat, Owner: "anna"}, true},
		{"a visitor reads no chat of a person", visitor, ActionRead, annas, false},
		{"a visitor reads no chat of another visitor", visitor, ActionRead, Object{KindChat, "visitor-2", "4"}, false},
		{"the owner of the server reads no chat of a visitor", Local, ActionRead, visitors, false},
		{"a visitor uses a model", visitor, ActionAsk, Object{Kind: KindModel}, true},
		{"a visitor manages no model", visitor, ActionManage, Object{Kind: KindModel}, false},
		{"a visitor reads presets", visitor, ActionRead, Object{Kind: KindPreset, Owner: "visitor-1"}, true},
		{"a visitor changes no preset", visitor, ActionChange, Object{Kind: KindPreset, Owner: "visitor-1"}, false},
		{"a visitor changes no setting", visitor, ActionChange, Object{Kind: KindSetting, Owner: "visitor-1"}, false},
		{"a visitor has no account", visitor, ActionChange, Object{Kind: KindPerson, Owner: "visitor-1"}, false},
		{"a visitor has no passphrase", visitor, ActionChange, Object{Kind: KindPassphrase, Owner: "visitor-1"}, false},
		{"a visitor manages no people", visitor, ActionManage, Object{Kind: KindPerson}, false},
		{"a visitor stops an answer of their own", visitor, ActionChange, Object{Kind: KindAnswer, Owner: "visitor-1"}, true},
		{"a visitor sees no answer of a person", visitor, ActionRead, Object{Kind: KindAnswer, Owner: "anna"}, false},
		{"the owner stops the answer of a visitor", Local, ActionChange, Object{Kind: KindAnswer, Owner: "visitor-1"}, true},
		{"nobody reads what is nobody's", nobody, ActionRead, Object{Kind: KindChat}, false},
		{"nobody uses no model", nobody, ActionAsk, Object{Kind: KindModel}, false},
		{"who has the role and no name is nobody", Principal{Role: RoleOwner}, ActionManage, Object{Kind: KindModel}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := Authorize(tc.who, tc.action, tc.what); (err == nil) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPrincipalOf_IsNobodyUnlessTheGateSaysWho(t *testing.T) {
	if who := PrincipalOf(context.Background()); who != (Principal{}) {
		t.Errorf("got %+v", who)
	}
	if who := PrincipalOf(With(context.Background(), Local)); who != Local {
		t.Errorf("got %+v", who)
	}
}
