package bridge

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Fields that the published messages do not have. proto/si/v1/si.proto and proto/evenhand/v1/config.proto say
// what they mean. The published messages keep them as unknown fields. A second set of generated messages
// could not be linked beside the published one, and is not needed.
const (
	fieldSchedulingStates = 100 // AllocationResponse
	fieldConstraints      = 100 // Allocation

	fieldAllowedNodes  = 6 // NodeConstraints
	fieldExcludedNodes = 7

	applyMethod   = "/evenhand.v1.ConfigurationService/Apply"
	fieldYaml     = 1 // ApplyRequest
	fieldSource   = 2
	fieldRmID     = 6
	fieldProblems = 1 // ApplyResponse
	fieldApplied  = 2

	fieldSeverity    = 1 // ConfigProblem
	fieldLine        = 2
	fieldPath        = 3
	fieldMessage     = 4
	fieldConsequence = 5
	severityError    = 2
)

// schedulingStates returns the states of waiting asks in a response.
func schedulingStates(response *si.AllocationResponse) []*si.UpdateContainerSchedulingStateRequest {
	var states []*si.UpdateContainerSchedulingStateRequest
	each(response.ProtoReflect().GetUnknown(), func(number protowire.Number, _ uint64, data []byte) {
		state := &si.UpdateContainerSchedulingStateRequest{}
		if number == fieldSchedulingStates && proto.Unmarshal(data, state) == nil {
			states = append(states, state)
		}
	})
	return states
}

// nodeConstraints returns a NodeConstraints message that limits an ask to the nodes that suit it. Of two
// forms it takes the shorter one. Empty: each node suits.
func nodeConstraints(suited, excluded []string) []byte {
	if len(excluded) == 0 {
		return nil
	}
	if len(suited) == 0 && len(excluded) > namesMax {
		suited = []string{"no-node-suits"} // the name of no node
	}
	number, names := protowire.Number(fieldExcludedNodes), excluded
	if len(suited) > 0 && len(suited) <= len(excluded) {
		number, names = fieldAllowedNodes, suited
	}
	var message []byte
	for _, name := range names[:min(len(names), namesMax)] {
		message = appendText(message, number, name)
	}
	return message
}

// withConstraints adds node constraints to an ask; empty ones add nothing.
func withConstraints(ask *si.Allocation, constraints []byte) {
	if len(constraints) > 0 {
		unknown := protowire.AppendTag(ask.ProtoReflect().GetUnknown(), fieldConstraints, protowire.BytesType)
		ask.ProtoReflect().SetUnknown(protowire.AppendBytes(unknown, constraints))
	}
}

// apply sends a configuration to the core, and returns the warnings about it. If the text is not applied, an
// error is returned, although the call itself succeeds.
func apply(ctx context.Context, conn *grpc.ClientConn, request *si.UpdateConfigurationRequest) ([]string, error) {
	var fields []byte
	fields = appendText(fields, fieldYaml, request.GetConfig())
	fields = appendText(fields, fieldSource, request.GetRmID())
	fields = appendText(fields, fieldRmID, request.GetRmID())
	// A message of no fields carries any fields as unknown ones.
	sent, got := &emptypb.Empty{}, &emptypb.Empty{}
	sent.ProtoReflect().SetUnknown(fields)
	if err := conn.Invoke(ctx, applyMethod, sent, got); err != nil {
		return nil, fmt.Errorf("the configuration was not applied: %w", err)
	}
	applied := false
	var errors, warnings []string
	each(got.ProtoReflect().GetUnknown(), func(number protowire.Number, value uint64, data []byte) {
		switch number {
		case fieldApplied:
			applied = value != 0
		case fieldProblems:
			if text, isError := problem(data); isError {
				errors = append(errors, text)
			} else {
				warnings = append(warnings, text)
			}
		}
	})
	if !applied {
		return warnings, fmt.Errorf("the configuration was not applied: %s", strings.Join(errors, "; "))
	}
	return warnings, nil
}

// problem returns the text of a ConfigProblem with its place, and whether it is an error.
func problem(data []byte) (text string, isError bool) {
	var line uint64
	var path, message, consequence string
	each(data, func(number protowire.Number, value uint64, data []byte) {
		switch number {
		case fieldSeverity:
			isError = value == severityError
		case fieldLine:
			line = value
		case fieldPath:
			path = string(data)
		case fieldMessage:
			message = string(data)
		case fieldConsequence:
			consequence = string(data)
		}
	})
	if path != "" {
		text = path + ": "
	}
	if line > 0 {
		text = fmt.Sprintf("line %d: %s", line, text)
	}
	text += message
	if consequence != "" {
		text += " (" + consequence + ")"
	}
	return text, isError
}

func appendText(message []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(message, number, protowire.BytesType), text)
}

// each calls a function with each number and each text or message in a message. It stops at the first part
// that cannot be read.
func each(message []byte, field func(number protowire.Number, value uint64, data []byte)) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		switch kind {
		case protowire.VarintType:
			var value uint64
			value, size = protowire.ConsumeVarint(message)
			field(number, value, nil)
		case protowire.BytesType:
			var data []byte
			data, size = protowire.ConsumeBytes(message)
			field(number, 0, data)
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return
		}
		message = message[size:]
	}
}
