package main

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of si.v1: AllocationRequest.releases, and in it allocationsToRelease.
const (
	releasesField  = 2
	toReleaseField = 1
)

// asBytes is a codec that leaves messages as they are.
type asBytes struct{}

func (asBytes) Name() string { return "proto" }

func (asBytes) Marshal(message any) ([]byte, error) { return message.([]byte), nil }

func (asBytes) Unmarshal(data []byte, into any) error {
	*into.(*[]byte) = data
	return nil
}

// scanned is what a step looks for in one answer.
type scanned struct {
	counted  int
	refused  []byte
	releases [][]byte
}

// scan walks the top of a message; what is inside its objects is not read.
func scan(message []byte, s *step) (found scanned, err error) {
	for len(message) > 0 {
		field, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return found, fmt.Errorf("no message: %w", protowire.ParseError(size))
		}
		whole := protowire.ConsumeFieldValue(field, kind, message[size:])
		if whole < 0 {
			return found, fmt.Errorf("no message: %w", protowire.ParseError(whole))
		}
		if kind == protowire.BytesType {
			object, _ := protowire.ConsumeBytes(message[size:])
			found.look(int(field), object, s)
		}
		message = message[size+whole:]
	}
	return found, nil
}

// look sorts one object by its field; a number of 0 in the step stands for no field.
func (f *scanned) look(field int, object []byte, s *step) {
	if field == s.Confirmed {
		f.releases = append(f.releases, object)
	}
	if field == s.Counted && s.accepts(object) {
		f.counted++
	} else if field == s.Counted || field == s.Refused {
		f.refused = object
	}
}

// confirmation says that these releases have happened: the same objects, back.
func confirmation(releases [][]byte, manager []byte) []byte {
	var inner []byte
	for _, one := range releases {
		inner = protowire.AppendTag(inner, toReleaseField, protowire.BytesType)
		inner = protowire.AppendBytes(inner, one)
	}
	message := protowire.AppendTag(nil, releasesField, protowire.BytesType)
	message = protowire.AppendBytes(message, inner)
	return append(message, manager...)
}
