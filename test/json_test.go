package test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// jsonTypes holds a value of every exported type that marshals to JSON.
var jsonTypes = []any{
	orchestrator.CallStats{},
	orchestrator.Causes{},
	orchestrator.Config{},
	orchestrator.Change[string, int]{},
	orchestrator.ChangeKind{},
	orchestrator.ChangeOp(""),
	orchestrator.Durations{},
	orchestrator.Explanation[string]{},
	orchestrator.Handoff(0),
	orchestrator.Hold{},
	orchestrator.Hypothesis[string, int]{},
	orchestrator.InstanceStats{},
	orchestrator.LabelCount{},
	orchestrator.Op(0), orchestrator.Outcome(""),
	orchestrator.Pause[string, int]{},
	orchestrator.PauseKind(""),
	orchestrator.Phase(""),
	orchestrator.Plan[string, string]{},
	orchestrator.Progress[string]{},
	orchestrator.Reason(""), orchestrator.State(0),
	orchestrator.Task[string]{},
	orchestrator.TaskSettings{},
	orchestrator.Term{},
	orchestrator.TermStats{},
	orchestrator.Waiting[string, int]{},
	orchestrator.WaitingKind(""),
	orchestrator.Worker[string]{},
	orchestrator.WorkerPlan[string]{},
	orchestrator.WorkerReason[string]{},
	orchestrator.WorkerSettings{},
	orchestrator.WorkerState[string, string]{},
	orchestrator.WorkerStats{},
	orchestrator.Write[string]{},
}

// noJSON holds the other exported types: interfaces, errors, and an orchestrator.
var noJSON = []string{
	"Applier", "CallError", "Communicator", "HandoffOption", "Option", "Orchestrator", "Snapshot", "TaskOption", "TermError", "WorkerOption",
}

// TestD18_EveryType checks that jsonTypes is complete.
func TestD18_EveryType(t *testing.T) {
	var want []string
	paths, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.IsExported() {
						want = append(want, spec.Name.Name)
					}
				}
			}
		}
	}
	got := slices.Clone(noJSON)
	for _, v := range jsonTypes {
		name, _, _ := strings.Cut(reflect.TypeOf(v).Name(), "[")
		got = append(got, name)
	}
	require.ElementsMatch(t, want, got)
}

// FuzzD18_JSON marshals random values of every type, unmarshals the text and marshals the
// result: the bytes must be the same.
func FuzzD18_JSON(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, "text\n<é\xff>\u202e")
	}
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		r := filler{rand.New(rand.NewPCG(seed, 0)), text}
		for _, v := range jsonTypes {
			value := reflect.New(reflect.TypeOf(v))
			r.fill(value.Elem())
			first, err := json.Marshal(value.Interface())
			require.NoError(t, err)
			read := reflect.New(reflect.TypeOf(v))
			require.NoError(t, json.Unmarshal(first, read.Interface()), "%T: %s", v, first)
			second, err := json.Marshal(read.Interface())
			require.NoError(t, err)
			require.Equal(t, string(first), string(second), "%T", v)
		}
	})
}

// TestD18_SnakeCase checks the names of the fields.
func TestD18_SnakeCase(t *testing.T) {
	r := filler{rand.New(rand.NewPCG(1, 1)), "x"}
	var keys func(v any)
	keys = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				require.Equal(t, strings.ToLower(key), key)
				keys(value)
			}
		case []any:
			for _, value := range v {
				keys(value)
			}
		}
	}
	for _, v := range jsonTypes {
		value := reflect.New(reflect.TypeOf(v))
		r.fill(value.Elem())
		text, err := json.Marshal(value.Interface())
		require.NoError(t, err)
		var read any
		require.NoError(t, json.Unmarshal(text, &read))
		keys(read)
	}
}

func TestD18_Refused(t *testing.T) {
	for text, into := range map[string]any{
		`"start"`:             new(orchestrator.ChangeKind),
		`"asleep"`:            new(orchestrator.State),
		`"start and stop"`:    new(orchestrator.Handoff),
		`"op(9)"`:             new(orchestrator.Op),
		`{"handoff":"never"}`: new(orchestrator.TaskSettings),
	} {
		require.ErrorIs(t, json.Unmarshal([]byte(text), into), orchestrator.ErrInvalid, text)
	}
	for _, into := range []json.Unmarshaler{
		new(orchestrator.Change[string, int]), new(orchestrator.Waiting[string, int]),
		new(orchestrator.Pause[string, int]), new(orchestrator.TermStats), new(orchestrator.TaskSettings),
	} {
		require.Error(t, into.UnmarshalJSON([]byte(`[]`)), "%T", into)
	}
	_, err := json.Marshal(orchestrator.Handoff(9))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
}

// filler fills values with random ones.
type filler struct {
	*rand.Rand
	text string
}

func (r filler) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<36), r.Int64N(1e9)).In(time.FixedZone("", 60*r.IntN(700)))))
		return
	case orchestrator.Handoff, orchestrator.State:
		v.SetUint(r.Uint64N(3))
		return
	case orchestrator.Op:
		v.SetUint(1 + r.Uint64N(4))
		return
	case orchestrator.TaskSettings:
		v.Set(reflect.ValueOf(orchestrator.TaskSettings{
			Instances: r.IntN(3), Handoff: orchestrator.Handoff(r.IntN(3)), Requires: [][]string{nil, {"gpu"}, {"!spot", "gpu"}}[r.IntN(3)],
			MaxPerZone: r.IntN(4) - 1, Weight: r.Int64N(orchestrator.MaxWeight + 1),
		}))
		return
	case orchestrator.ChangeOp:
		v.SetString([]string{"start", "stop", "move"}[r.IntN(3)])
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int64N(1 << (1 + r.IntN(31))))
	case reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.String:
		v.SetString(strings.ToValidUTF8(r.text[:r.IntN(len(r.text)+1)], ""))
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			r.fill(v.Elem())
		}
	case reflect.Interface: // an error
		if r.IntN(2) == 0 {
			v.Set(reflect.ValueOf(errors.New(r.text)))
		}
	case reflect.Slice:
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		}
		r.elements(v)
	case reflect.Array:
		r.elements(v)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			r.fill(key)
			r.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() { // it is exported
				r.fill(field)
			}
		}
	default:
		panic("no random value of " + v.Type().String())
	}
}

func (r filler) elements(v reflect.Value) {
	for i := range v.Len() {
		r.fill(v.Index(i))
	}
}
