package api_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// answers has a pointer to the zero value of each answer.
func answers() []any {
	return []any{
		&api.Status{}, &api.Current{}, &api.Workers{}, &api.WorkerDetail{}, &api.Tasks{}, &api.TaskDetail{}, &api.Terms{},
		&api.TermDetail{}, &api.Changes{}, &api.WhatIf{}, &api.Settings{}, &api.Drain{}, &api.Error{},
	}
}

// fill sets a value to a random one.
func fill(r *rand.Rand, v reflect.Value) {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	switch known := v.Addr().Interface().(type) {
	case *time.Time:
		if r.IntN(3) > 0 {
			*known = time.Unix(r.Int64N(1<<32), r.Int64N(1e9)).UTC()
		}
		return
	case *error:
		if text := pick("", "x", "a \"quoted\"\n<error>"); text != "" {
			*known = errors.New(text)
		}
		return
	case *orchestrator.ChangeKind:
		*known = orchestrator.ChangeKind{Op: orchestrator.ChangeOp(pick("start", "stop", "move")), Reason: orchestrator.Reason(pick("lost", "drain"))}
		return
	case *orchestrator.State:
		*known = orchestrator.State(r.IntN(3))
		return
	case *orchestrator.Handoff:
		*known = orchestrator.Handoff(r.IntN(3))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(r, v.Field(i))
			}
		}
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key)
			fill(r, value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(pick("", "held", "worker", "<script>", "\u2028 漢 \\u202e"))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	default:
		if n := r.IntN(3); v.CanInt() {
			v.SetInt(int64(n))
		} else {
			v.SetUint(uint64(n))
		}
	}
}

func FuzzD18_RoundTrip(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for _, answer := range answers() {
			fill(rand.New(rand.NewPCG(seed, 1)), reflect.ValueOf(answer).Elem())
			first, err := json.Marshal(answer)
			require.NoError(t, err)
			back := reflect.New(reflect.TypeOf(answer).Elem()).Interface()
			require.NoError(t, json.Unmarshal(first, back), "%s", first)
			second, err := json.Marshal(back)
			require.NoError(t, err)
			require.Equal(t, string(first), string(second))
		}
	})
}
