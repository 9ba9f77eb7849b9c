package postgres

import (
	"encoding/json"
	"reflect"
	"strconv"
)

// escape returns a text in printable ASCII, as in Go source. So it fits in a database of any
// encoding, and what it was made from may have any bytes.
func escape(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

// unescape returns what escape was given. A text that was changed by hand may be none: it
// stays as it is.
func unescape(s string) string {
	if text, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return text
	}
	return s
}

// decode returns a record, whose texts are escaped. One that cannot be read is an error.
func decode[T any](text json.RawMessage) (record T, err error) {
	err = json.Unmarshal(text, &record)
	return mapped(record, unescape), err
}

// each returns those of some records that can be read.
func each[T any](all []json.RawMessage) (records []T) {
	for _, raw := range all {
		if r, err := decode[T](raw); err == nil {
			records = append(records, r)
		}
	}
	return records
}

// mapped returns a copy of a value in which every string is f of the one in v, also keys of
// maps.
func mapped[T any](v T, f func(string) string) T {
	reflect.ValueOf(&v).Elem().Set(mappedValue(reflect.ValueOf(v), f))
	return v
}

func mappedValue(v reflect.Value, f func(string) string) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch {
	case v.Kind() == reflect.String:
		c.SetString(f(v.String()))
	case v.Kind() == reflect.Struct:
		for i, field := range v.Fields() {
			if i.IsExported() { // not those of a time.Time
				c.FieldByIndex(i.Index).Set(mappedValue(field, f))
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(mappedValue(v.Elem(), f))
	case v.Kind() == reflect.Slice && !v.IsNil():
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(mappedValue(v.Index(i), f))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		c.Set(reflect.MakeMap(v.Type()))
		for key, value := range v.Seq2() {
			c.SetMapIndex(mappedValue(key, f), mappedValue(value, f))
		}
	}
	return c
}
