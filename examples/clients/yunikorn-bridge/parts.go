package bridge

import (
	"slices"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/proto"
)

// objectsMax keeps messages below the core's limits of 10,000 objects and 4 MiB. Calls within one process have
// no such limits.
const objectsMax = 1_000

// parts splits a message into as many as it needs, and returns them in the order in which the core handles its
// objects.
func parts(message proto.Message) []proto.Message {
	var found []proto.Message
	switch request := message.(type) {
	case *si.NodeRequest:
		for nodes := range slices.Chunk(request.GetNodes(), objectsMax) {
			found = append(found, &si.NodeRequest{RmID: request.GetRmID(), Nodes: nodes})
		}
	case *si.ApplicationRequest:
		for added := range slices.Chunk(request.GetNew(), objectsMax) {
			found = append(found, &si.ApplicationRequest{RmID: request.GetRmID(), New: added})
		}
		for removed := range slices.Chunk(request.GetRemove(), objectsMax) {
			found = append(found, &si.ApplicationRequest{RmID: request.GetRmID(), Remove: removed})
		}
	case *si.AllocationRequest:
		for allocations := range slices.Chunk(request.GetAllocations(), objectsMax) {
			found = append(found, &si.AllocationRequest{RmID: request.GetRmID(), Allocations: allocations})
		}
		for releases := range slices.Chunk(request.GetReleases().GetAllocationsToRelease(), objectsMax) {
			found = append(found, &si.AllocationRequest{RmID: request.GetRmID(),
				Releases: &si.AllocationReleasesRequest{AllocationsToRelease: releases}})
		}
	}
	return found
}
