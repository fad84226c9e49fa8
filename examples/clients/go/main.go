// A resource manager in Go: report nodes, ask for pods, end a pod when the core orders it. The argument is HOST:PORT.
// The exit code is 1 when the core refuses something. The error stream then has the core's message.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"example.com/evenhand-client/gen/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const manager = "example"
const queues = `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
          - name: web
            resources: {guaranteed: {vcore: 1}}  # in cores; messages count millicores
            properties: {preemption.delay: 1s}
`

// refuse ends the program with the core's message.
func refuse(words string) {
	fmt.Fprintln(os.Stderr, "refused:", words)
	os.Exit(1)
}

// must returns the result of a call that went well. A Send that fails needs no check: the next Recv has the reason.
func must[Result any](result Result, err error) Result {
	if err == io.EOF {
		refuse("the core ended the stream")
	} else if err != nil {
		refuse(status.Convert(err).Message())
	}
	return result
}

// check ends the program when the core rejected something.
func check[Rejected interface{ GetReason() string }](rejected []Rejected) {
	for _, one := range rejected {
		refuse(one.GetReason())
	}
}

// finish ends this side of a stream. It reads until the core has handled every message and ends its side.
func finish[Message, Answer any](stream grpc.BidiStreamingClient[Message, Answer]) {
	for err := stream.CloseSend(); err != io.EOF; _, err = stream.Recv() {
		must(stream, err)
	}
}

// cores returns a quantity of processor time.
func cores(millicores int64) *si.Resource {
	return &si.Resource{Resources: map[string]*si.Quantity{"vcore": {Value: millicores}}}
}

// ask returns an ask: an allocation that names no node.
func ask(key, application string, millicores int64) *si.Allocation {
	return &si.Allocation{AllocationKey: key, ApplicationID: application, ResourcePerAlloc: cores(millicores)}
}

// follow reads placements and orders to release pods, until the pod with this key is placed.
func follow(stream si.Scheduler_UpdateAllocationClient, last string) {
	for placed := false; !placed; {
		answer := must(stream.Recv())
		check(answer.RejectedAllocations)
		for _, pod := range answer.New {
			fmt.Println(pod.AllocationKey, "placed on", pod.NodeID)
			placed = placed || pod.AllocationKey == last
		}
		for _, order := range answer.Released {
			fmt.Printf("%s must end for %s: %s\n", order.AllocationKey, order.Beneficiary, order.TerminationType)
			// End the pod here. When it has ended, send the order back: that confirms the release.
			fmt.Println(order.AllocationKey, "ended")
			ended := &si.AllocationReleasesRequest{AllocationsToRelease: []*si.AllocationRelease{order}}
			stream.Send(&si.AllocationRequest{RmID: manager, Releases: ended})
		}
	}
}

func main() {
	address := append(os.Args, "127.0.0.1:50051")[1]
	channel := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer channel.Close()
	core, ctx := si.NewSchedulerClient(channel), context.Background()
	must(core.RegisterResourceManager(ctx, &si.RegisterResourceManagerRequest{RmID: manager, Config: queues}))
	fmt.Println("registered as", manager)
	nodes, applications := must(core.UpdateNode(ctx)), must(core.UpdateApplication(ctx))
	allocations := must(core.UpdateAllocation(ctx))

	nodes.Send(&si.NodeRequest{RmID: manager, Nodes: []*si.NodeInfo{
		{NodeID: "node-1", Action: si.NodeInfo_CREATE, SchedulableResource: cores(2000)},
		{NodeID: "node-2", Action: si.NodeInfo_CREATE, SchedulableResource: cores(2000)},
	}})
	for wanted := 2; wanted > 0; {
		answer := must(nodes.Recv())
		check(answer.Rejected)
		for _, node := range answer.Accepted {
			fmt.Println(node.NodeID, "accepted")
		}
		wanted -= len(answer.Accepted)
	}
	ada := &si.UserGroupInformation{User: "ada"}
	applications.Send(&si.ApplicationRequest{RmID: manager, New: []*si.AddApplicationRequest{
		{ApplicationID: "nightly", QueueName: "root.batch", Ugi: ada},
		{ApplicationID: "shop", QueueName: "root.web", Ugi: ada},
	}})
	for wanted := 2; wanted > 0; {
		answer := must(applications.Recv())
		check(answer.Rejected)
		for _, application := range answer.Accepted {
			fmt.Println(application.ApplicationID, "accepted")
		}
		wanted -= len(answer.Accepted)
	}

	// Three pods of queue `batch` fill both nodes.
	allocations.Send(&si.AllocationRequest{RmID: manager, Allocations: []*si.Allocation{
		ask("batch-1", "nightly", 2000), ask("batch-2", "nightly", 1000), ask("batch-3", "nightly", 1000),
	}})
	follow(allocations, "batch-3")
	// Queue `web` is guaranteed one core: after its delay, a pod of `batch` must end for this ask.
	allocations.Send(&si.AllocationRequest{RmID: manager, Allocations: []*si.Allocation{ask("web-1", "shop", 1000)}})
	follow(allocations, "web-1")
	fmt.Println("press Enter to leave")
	fmt.Scanln()

	// Whatever still runs of an application ends with it.
	applications.Send(&si.ApplicationRequest{RmID: manager, Remove: []*si.RemoveApplicationRequest{
		{ApplicationID: "nightly"}, {ApplicationID: "shop"},
	}})
	finish(applications)
	nodes.Send(&si.NodeRequest{RmID: manager, Nodes: []*si.NodeInfo{
		{NodeID: "node-1", Action: si.NodeInfo_DECOMISSION}, {NodeID: "node-2", Action: si.NodeInfo_DECOMISSION},
	}})
	finish(nodes)
	finish(allocations)
	fmt.Println("left")
}
