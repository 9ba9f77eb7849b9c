package dashboard

import (
	"cmp"
	"strings"
	"text/template"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// words is the sentences of web/words.txt.
type words struct{ *template.Template }

func newWords() (words, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"clock": clock, "count": grouped, "held": api.HeldText, "minus": minus, "pick": pick, "plural": plural, "tally": count,
	}).ParseFS(web, "web/words.txt")
	return words{t}, err
}

// say returns the lines of a sentence that are not empty, with sep between them. It returns "" if there is
// no such sentence.
func (w words) say(name string, data any, sep string) string {
	var b strings.Builder
	if one := w.Lookup(name); one == nil {
		return ""
	} else if err := one.Execute(&b, data); err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, sep)
}

// reason returns the words of a kind for a reason, or else the reason.
func (w words) reason(kind string, r orchestrator.Reason) string {
	return cmp.Or(w.say(kind+" "+string(r), nil, ""), string(r))
}
