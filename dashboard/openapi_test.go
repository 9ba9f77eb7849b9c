package dashboard_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// answers has the type of the answer of each route.
var answers = map[string]any{
	"status": api.Status{}, "progress": api.Current{}, "workers": api.Workers{}, "worker": api.WorkerDetail{},
	"tasks": api.Tasks{}, "task": api.TaskDetail{}, "terms": api.Terms{}, "term": api.TermDetail{},
	"changes": api.Changes{}, "what-if": api.WhatIf{}, "settings": api.Settings{}, "drain": api.Drain{},
}

// filled returns a value of a type in which no field is zero.
func filled(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch known := v.Addr().Interface().(type) {
	case *time.Time:
		*known = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		return v
	case *error:
		*known = errors.New("x")
		return v
	case *orchestrator.PauseKind: // one that has a worker and a task
		*known = orchestrator.PauseStart
		return v
	case *orchestrator.ChangeKind: // the one that has all workers
		*known = orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonLost}
		return v
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				v.Field(i).Set(filled(t.Field(i).Type))
			}
		}
	case reflect.Pointer:
		v.Set(filled(t.Elem()).Addr())
	case reflect.Slice:
		v.Set(reflect.Append(v, filled(t.Elem())))
	case reflect.Array:
		for i := range t.Len() {
			v.Index(i).Set(filled(t.Elem()))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(filled(t.Key()), filled(t.Elem()))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		if v.CanInt() {
			v.SetInt(1)
		} else {
			v.SetUint(1)
		}
	}
	return v
}

// openAPI is the document, with references resolved by at.
type openAPI struct {
	t   *testing.T
	doc map[string]any
}

func newOpenAPI(t *testing.T) openAPI {
	t.Helper()
	h, err := dashboard.New()
	require.NoError(t, err)
	w := serve(h, request(http.MethodGet, "/api/v1/openapi.json"))
	require.Equal(t, http.StatusOK, w.Code)
	o := openAPI{t: t}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o.doc))
	return o
}

// at returns the object at a path of keys.
func (o openAPI) at(from any, keys ...string) map[string]any {
	o.t.Helper()
	object, ok := from.(map[string]any)
	require.True(o.t, ok, "%v: not an object", keys)
	if ref, ok := object["$ref"].(string); ok {
		object = o.at(o.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	if len(keys) == 0 {
		return object
	}
	require.Contains(o.t, object, keys[0])
	return o.at(object[keys[0]], keys[1:]...)
}

// TestOpenAPI_Routes: the document has the routes and parameters of the handler.
func TestOpenAPI_Routes(t *testing.T) {
	h, err := dashboard.New()
	require.NoError(t, err)
	want := map[string][]string{"post /drain": {"worker"}, "delete /drain": {"worker"}}
	for name, params := range h.Routes() {
		want["get /"+name] = slices.Sorted(slices.Values(params))
	}
	o, got := newOpenAPI(t), make(map[string][]string)
	for path, methods := range o.at(o.doc, "paths") {
		for method, operation := range o.at(methods) {
			var params []string
			if list, ok := o.at(operation)["parameters"].([]any); ok {
				for _, p := range list {
					require.Equal(t, "query", o.at(p)["in"])
					name, ok := o.at(p)["name"].(string)
					require.True(t, ok)
					params = append(params, name)
				}
			}
			got[method+" "+path] = slices.Sorted(slices.Values(params))
		}
	}
	require.Equal(t, want, got)
}

// TestOpenAPI_Answers: each answer has exactly the fields of its schema, with their types.
func TestOpenAPI_Answers(t *testing.T) {
	o := newOpenAPI(t)
	for path, methods := range o.at(o.doc, "paths") {
		for method, operation := range o.at(methods) {
			answer, ok := answers[strings.TrimPrefix(path, "/")]
			require.True(t, ok, path)
			schema := o.at(operation, "responses", "200", "content", "application/json", "schema")
			o.check(method+path, schema, filled(reflect.TypeOf(answer)).Interface())
			failed := o.at(operation, "responses", "default", "content", "application/problem+json", "schema")
			o.check(method+path+" error", failed, filled(reflect.TypeFor[api.Error]()).Interface())
		}
	}
}

// check compares the JSON of a value with a schema.
func (o openAPI) check(at string, schema map[string]any, value any) {
	o.t.Helper()
	text, err := json.Marshal(value)
	require.NoError(o.t, err)
	var decoded any
	require.NoError(o.t, json.Unmarshal(text, &decoded))
	o.compare(at, schema, decoded)
}

func (o openAPI) compare(at string, schema map[string]any, value any) {
	o.t.Helper()
	switch value := value.(type) {
	case map[string]any:
		require.Equal(o.t, "object", schema["type"], at)
		if values, ok := schema["additionalProperties"]; ok {
			for _, v := range value {
				o.compare(at+".*", o.at(values), v)
			}
			return
		}
		properties := o.at(schema, "properties")
		require.Equal(o.t, slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(value)), at)
		for name, v := range value {
			o.compare(at+"."+name, o.at(properties[name]), v)
		}
	case []any:
		require.Equal(o.t, "array", schema["type"], at)
		for _, v := range value {
			o.compare(at+"[]", o.at(schema, "items"), v)
		}
	case string:
		require.Equal(o.t, "string", schema["type"], at)
	case bool:
		require.Equal(o.t, "boolean", schema["type"], at)
	case float64:
		want := "integer"
		if value != float64(int(value)) {
			want = "number"
		}
		require.Equal(o.t, want, schema["type"], at)
	}
}
