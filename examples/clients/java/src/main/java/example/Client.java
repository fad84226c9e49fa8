package example;

import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.stub.BlockingClientCall;
import java.util.List;
import si.v1.SchedulerGrpc;
import si.v1.Si.*;
import si.v1.Si.NodeInfo.ActionFromRM;

// A resource manager in Java: report nodes, ask for pods, end a pod when the core orders it. The argument is HOST:PORT.
// The exit code is 1 when the core refuses something. The error stream then has the core's message.
public final class Client {
  private static final String MANAGER = "example";
  private static final String QUEUES = """
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
      """;

  /** Return the failure that ends the program, in the core's words. */
  private static StatusException refused(String words) {
    return Status.ABORTED.withDescription(words).asException();
  }

  /** Wait for the next answer of a stream. */
  private static <A> A receive(BlockingClientCall<?, A> stream) throws Exception {
    A answer = stream.read();
    if (answer == null) throw refused("the core ended the stream");
    return answer;
  }

  /** End this side of a stream, and read until the core has handled every message and ends its side. */
  private static void close(BlockingClientCall<?, ?> stream) throws Exception {
    stream.halfClose();
    while (stream.read() != null) {}
  }

  /** Return a quantity of processor time. */
  private static Resource cores(long millicores) {
    return Resource.newBuilder().putResources("vcore", Quantity.newBuilder().setValue(millicores).build()).build();
  }

  /** Return the report of a node of two cores, or of its removal. */
  private static NodeInfo node(String name, ActionFromRM action) {
    return NodeInfo.newBuilder().setNodeID(name).setAction(action).setSchedulableResource(cores(2000)).build();
  }

  /** Return an ask: an allocation that names no node. */
  private static Allocation ask(String key, String application, long millicores) {
    var ask = Allocation.newBuilder().setAllocationKey(key).setApplicationID(application);
    return ask.setResourcePerAlloc(cores(millicores)).build();
  }

  /** Return an application of the user ada. */
  private static AddApplicationRequest application(String name, String queue) {
    var ada = UserGroupInformation.newBuilder().setUser("ada");
    return AddApplicationRequest.newBuilder().setApplicationID(name).setQueueName(queue).setUgi(ada).build();
  }

  /** Read placements and orders to release pods, until the pod with this key is placed. */
  private static void follow(BlockingClientCall<AllocationRequest, AllocationResponse> stream, String last)
      throws Exception {
    for (var placed = false; !placed; ) {
      var answer = receive(stream);
      for (var rejected : answer.getRejectedAllocationsList()) throw refused(rejected.getReason());
      for (var pod : answer.getNewList()) {
        System.out.println(pod.getAllocationKey() + " placed on " + pod.getNodeID());
        placed |= pod.getAllocationKey().equals(last);
      }
      for (var order : answer.getReleasedList()) {
        var key = order.getAllocationKey();
        System.out.printf("%s must end for %s: %s%n", key, order.getBeneficiary(), order.getTerminationType());
        // End the pod here. When it has ended, send the order back: that confirms the release.
        System.out.println(key + " ended");
        var ended = AllocationReleasesRequest.newBuilder().addAllocationsToRelease(order);
        stream.write(AllocationRequest.newBuilder().setRmID(MANAGER).setReleases(ended).build());
      }
    }
  }

  /** Play a resource manager from its registration to its end. */
  private static void run(SchedulerGrpc.SchedulerBlockingV2Stub core) throws Exception {
    core.registerResourceManager(RegisterResourceManagerRequest.newBuilder().setRmID(MANAGER).setConfig(QUEUES).build());
    System.out.println("registered as " + MANAGER);
    var nodes = core.updateNode();
    var applications = core.updateApplication();
    var allocations = core.updateAllocation();

    var created = List.of(node("node-1", ActionFromRM.CREATE), node("node-2", ActionFromRM.CREATE));
    nodes.write(NodeRequest.newBuilder().setRmID(MANAGER).addAllNodes(created).build());
    for (var wanted = 2; wanted > 0; ) {
      var answer = receive(nodes);
      for (var rejected : answer.getRejectedList()) throw refused(rejected.getReason());
      for (var node : answer.getAcceptedList()) System.out.println(node.getNodeID() + " accepted");
      wanted -= answer.getAcceptedCount();
    }
    var added = List.of(application("nightly", "root.batch"), application("shop", "root.web"));
    applications.write(ApplicationRequest.newBuilder().setRmID(MANAGER).addAllNew(added).build());
    for (var wanted = 2; wanted > 0; ) {
      var answer = receive(applications);
      for (var rejected : answer.getRejectedList()) throw refused(rejected.getReason());
      for (var one : answer.getAcceptedList()) System.out.println(one.getApplicationID() + " accepted");
      wanted -= answer.getAcceptedCount();
    }

    // Three pods of queue `batch` fill both nodes.
    var asks = AllocationRequest.newBuilder().setRmID(MANAGER).addAllocations(ask("batch-1", "nightly", 2000));
    asks.addAllocations(ask("batch-2", "nightly", 1000)).addAllocations(ask("batch-3", "nightly", 1000));
    allocations.write(asks.build());
    follow(allocations, "batch-3");
    // Queue `web` is guaranteed one core: after its delay, a pod of `batch` must end for this ask.
    allocations.write(asks.clearAllocations().addAllocations(ask("web-1", "shop", 1000)).build());
    follow(allocations, "web-1");
    System.out.println("press Enter to leave");
    System.in.read();

    // Whatever still runs of an application ends with it.
    var removed = ApplicationRequest.newBuilder().setRmID(MANAGER);
    for (var one : added) removed.addRemoveBuilder().setApplicationID(one.getApplicationID());
    applications.write(removed.build());
    close(applications);
    var gone = List.of(node("node-1", ActionFromRM.DECOMISSION), node("node-2", ActionFromRM.DECOMISSION));
    nodes.write(NodeRequest.newBuilder().setRmID(MANAGER).addAllNodes(gone).build());
    close(nodes);
    close(allocations);
    System.out.println("left");
  }

  public static void main(String[] arguments) throws Exception {
    var address = arguments.length > 0 ? arguments[0] : "127.0.0.1:50051";
    var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    try {
      run(SchedulerGrpc.newBlockingV2Stub(channel));
    } catch (StatusException error) {
      System.err.println("refused: " + error.getStatus().getDescription());
      System.exit(1);
    }
  }
}
