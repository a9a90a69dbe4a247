package handlers_test

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// toolDefinition is the part of a tool's definition that shellCaller reads.
type toolDefinition struct {
	Function struct {
		Name       string `json:"name"`
		Parameters struct {
			Properties map[string]struct {
				Type any `json:"type"`
			} `json:"properties"`
			Required []string `json:"required"`
		} `json:"parameters"`
	} `json:"function"`
}

var shellNames = regexp.MustCompile(`(?i)^(exec_command|shell_command|shell|bash|run_shell_command|run_terminal_command)$`)

// shellCaller is an engine that calls the tool by which a program for coding runs commands, and then says what that
// returned.
func shellCaller(t *testing.T) *handlerstest.FakeEngine {
	return &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == "tool" {
			return handlerstest.Replay(handlerstest.WordEvent(1, "It returned: "), handlerstest.WordEvent(2, r.Messages[n-1].Content), handlerstest.DoneEvent(infer.FinishStop))
		}
		var tools []toolDefinition
		_ = json.Unmarshal(r.Tools, &tools) // a request without tools has none
		for _, tool := range tools {
			if shellNames.MatchString(tool.Function.Name) {
				return handlerstest.Replay(callOfShell(tool), handlerstest.DoneEvent(infer.FinishCalls))
			}
		}
		t.Logf("no tool runs commands: %.300s", r.Tools)
		return handlerstest.Replay(handlerstest.WordEvent(1, "A title"), handlerstest.DoneEvent(infer.FinishStop))
	}}
}

// callOfShell calls a tool with a command whose result is in no prompt.
func callOfShell(tool toolDefinition) infer.Event {
	const command = "echo m40-$((20+1))"
	args := map[string]any{}
	for name, p := range tool.Function.Parameters.Properties {
		switch {
		case (name == "command" || name == "cmd") && p.Type == "array":
			args[name] = []string{"bash", "-lc", command}
		case name == "command" || name == "cmd":
			args[name] = command
		}
	}
	for _, name := range tool.Function.Parameters.Required {
		switch {
		case args[name] != nil:
		case tool.Function.Parameters.Properties[name].Type == "boolean":
			args[name] = false
		default:
			args[name] = "say a number"
		}
	}
	written, _ := json.Marshal(args) // cannot fail
	e := handlerstest.WordEvent(1, "")
	e.Token.Calls = []reply.CallDelta{{ID: "call00001", Name: tool.Function.Name, Arguments: string(written)}}
	return e
}

// clientProgram is a program for coding, of a package of npm.
type clientProgram struct {
	name, pkg, command string
	args               []string
	env                []string
	files              map[string]string // alongside which it runs, by their names; SERVER in them is the server
}

// clientPrograms are the programs that docs/clients.md has recipes of.
var clientPrograms = []clientProgram{
	{"Codex", "@openai/codex", "codex", []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Run echo."}, []string{"CODEX_HOME=HOME"}, map[string]string{
		"config.toml": "model = \"guide\"\nmodel_provider = \"m40\"\nmodel_context_window = 32768\n[model_providers.m40]\nname = \"m40-llm\"\nbase_url = \"SERVER/v1\"\nwire_api = \"responses\"\n",
	}},
	{"opencode", "opencode-ai", "opencode", []string{"run", "Run echo."}, []string{"OPENCODE_CONFIG=HOME/opencode.json", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1"}, map[string]string{
		"opencode.json": `{"provider":{"m40":{"npm":"@ai-sdk/openai-compatible","name":"m40-llm","options":{"baseURL":"SERVER/v1"},"models":{"guide":{"limit":{"context":32768,"output":4096}}}}},"model":"m40/guide","small_model":"m40/guide"}`,
	}},
	{"Qwen Code", "@qwen-code/qwen-code", "qwen", []string{"--auth-type", "openai", "--yolo", "-p", "Run echo."}, []string{"OPENAI_API_KEY=any", "OPENAI_BASE_URL=SERVER/v1", "OPENAI_MODEL=guide"}, map[string]string{
		".qwen/settings.json": `{"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false}}`,
	}},
	{"Claude Code", "@anthropic-ai/claude-code", "claude", []string{"-p", "Run echo.", "--model", "guide", "--allowedTools", "Bash"}, []string{"ANTHROPIC_BASE_URL=SERVER", "ANTHROPIC_AUTH_TOKEN=any", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}, nil},
	{"Continue", "@continuedev/cli", "cn", []string{"--auto", "--config", "HOME/continue.yaml", "-p", "Run echo."}, []string{"CONTINUE_TELEMETRY_ENABLED=0"}, map[string]string{
		"continue.yaml": "name: m40\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: guide\n    provider: openai\n    model: guide\n    apiBase: SERVER/v1\n    apiKey: any\n    roles: [chat]\n    capabilities: [tool_use]\n",
	}},
}

// TestClientPrograms has published programs for coding ask the server, run the command that the answer asks for, and
// send what it printed: make clients installs them. M40_LLM_CLIENT_PROGRAMS is the folder with their packages; without
// it the test is skipped.
func TestClientPrograms(t *testing.T) {
	modules := os.Getenv("M40_LLM_CLIENT_PROGRAMS")
	if modules == "" {
		t.Skip("M40_LLM_CLIENT_PROGRAMS is not set: make clients sets it")
	}
	for _, p := range clientPrograms {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s, home := handlerstest.Server(t, shellCaller(t)), t.TempDir()
			fill := strings.NewReplacer("SERVER", s.URL, "HOME/", home+"/", "=HOME", "="+home).Replace
			for name, text := range p.files {
				path := filepath.Join(home, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(fill(text)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(modules, ".bin", p.command))
			for _, arg := range p.args {
				cmd.Args = append(cmd.Args, fill(arg))
			}
			cmd.Dir = home
			cmd.Env = append(os.Environ(), "HOME="+home, "NO_COLOR=1", "CI=1")
			for _, e := range p.env {
				cmd.Env = append(cmd.Env, fill(e))
			}
			cmd.WaitDelay = 5 * time.Second
			out, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile(`(?s)It returned: .*m40-21`).Match(out) {
				t.Fatalf("%s: %v\n%s", p.pkg, err, out)
			}
			t.Logf("%s %s: chat, stream, tools, results", p.pkg, versionOf(t, modules, p.pkg))
		})
	}
}

// versionOf returns the version of an installed package.
func versionOf(t *testing.T, modules, pkg string) string {
	t.Helper()
	var description struct{ Version string }
	text, err := os.ReadFile(filepath.Join(modules, pkg, "package.json"))
	if err == nil {
		err = json.Unmarshal(text, &description)
	}
	if err != nil {
		t.Fatal(err)
	}
	return description.Version
}
