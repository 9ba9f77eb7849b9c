// Package ascii writes texts of any bytes as printable ones, for stores that do not keep all
// bytes, and for people.
package ascii

import (
	"reflect"
	"strconv"
)

// Escape returns a text in printable ASCII, as in Go source.
func Escape(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

// Unescape returns what Escape was given. If a text was changed by hand so that Escape cannot
// have returned it, it stays as it is.
func Unescape(s string) string {
	if text, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return text
	}
	return s
}

// Map returns a copy of a value in which every string is f of the one in v, also keys of maps.
func Map[T any](v T, f func(string) string) T {
	reflect.ValueOf(&v).Elem().Set(mapped(reflect.ValueOf(v), f))
	return v
}

func mapped(v reflect.Value, f func(string) string) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch {
	case v.Kind() == reflect.String:
		c.SetString(f(v.String()))
	case v.Kind() == reflect.Struct:
		for i, field := range v.Fields() {
			if i.IsExported() { // not those of a time.Time
				c.FieldByIndex(i.Index).Set(mapped(field, f))
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(mapped(v.Elem(), f))
	case v.Kind() == reflect.Slice && !v.IsNil():
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(mapped(v.Index(i), f))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		c.Set(reflect.MakeMap(v.Type()))
		for key, value := range v.Seq2() {
			c.SetMapIndex(mapped(key, f), mapped(value, f))
		}
	}
	return c
}
